"""Taggers on data in shards: training, prediction and score, here or on a Dask cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sklseq._labels import resolve_constraints
from sklseq._shards import ShardError, Shards, named
from sklseq._threads import Threads
from sklseq.features import DictFeatures
from sklseq.objectives._long import Plan, memory_told
from sklseq.objectives._scores import ScoreMap, Support
from sklseq.objectives._shards import (
    DataSurvey,
    ShardedLogLikelihood,
    ShardSurvey,
    merge_surveys,
    survey_shard,
)
from sklseq.solvers import SolverResult

__all__ = ["fit_shards", "predict_shards", "score_shards"]

PLAN = Plan("forward-backward", None, 0, "data in shards")


def fit_shards(tagger: Any, X: Any, y: Any, sample_weight: Any) -> Any:
    """The steps of ``CRFTagger.fit`` on data in shards."""
    _check_parameters(tagger)
    data = _source(X, y, sample_weight)
    surveys = data.surveys()
    found = merge_surveys(surveys, lambda k, why: ShardError(f"{data.name(k)}: {why}."))
    vectorizer = None if found.attributes is None else dict_features(found.attributes)
    scores = _score_map(tagger, found)
    start = tagger._starting_point(scores, found.classes, vectorizer)
    progress = _Progress(tagger)

    def likelihood(threads: Threads):
        return data.likelihood(scores, found, surveys, vectorizer, tagger.l2, threads)

    told = (X, y, found.classes, vectorizer)
    try:
        with memory_told(PLAN), data:
            result = tagger._solve(progress.descend, scores, likelihood, start, told)
    except ShardError as error:
        if progress.last is None:
            raise
        tagger._finish(scores, progress.result(), found.classes, vectorizer)
        raise ShardError(
            f"{error} The model of iteration {tagger.n_iter_} is kept; repair the shard, and go "
            "on from there with warm_start=True."
        ) from error
    return tagger._finish(scores, result, found.classes, vectorizer)


def _check_parameters(tagger: Any) -> None:
    if tagger.solver == "eg":
        raise ValueError(
            "solver='eg' keeps the state of every row in memory, 8 bytes a row and label; with "
            "shards, use solver='auto', 'lbfgs' or 'owlqn'."
        )
    if tagger.gradient not in ("auto", "forward-backward"):
        raise ValueError(
            f"gradient={tagger.gradient!r} is for single long sequences; with shards, use 'auto'."
        )


def _source(X: Any, y: Any, sample_weight: Any) -> Any:
    if sample_weight is not None:
        raise ValueError(
            "sample_weight of shards is part of them: (X, y, sample_weight), or "
            "X.save(path, y, sample_weight)."
        )
    if not isinstance(X, Shards):
        from sklseq._cluster import ClusterShards

        return ClusterShards(X, y)
    if y is not None:
        raise ValueError("Shards hold X and y; leave y out.")
    return LocalShards(X)


def _score_map(tagger: Any, found: DataSurvey) -> ScoreMap:
    L = len(found.classes)
    allowed = resolve_constraints(tagger.constraints, found.classes)
    support: Support = tagger._support(found.support, L)
    scores = ScoreMap(found.layout(), L, support, allowed, found.dtype, counts=found.counts)
    scores.largest, scores.n_rows = found.largest, found.n_rows
    return scores


def dict_features(attributes: list) -> DictFeatures:
    """What reads dicts and attribute lists with these columns."""
    features = DictFeatures()
    features.vocabulary_ = dict(zip(attributes, range(len(attributes))))
    features.n_features_out_ = len(attributes)
    return features


class _Progress:
    """The weights after the last whole iteration."""

    def __init__(self, tagger: Any):
        self.tagger, self.last, self.history = tagger, None, []

    def descend(self, likelihood, start, threads, report) -> SolverResult:
        def note(k: int, value: float, w: np.ndarray) -> bool:
            # w stays as it is until the next iteration is done: the solver has two in turn.
            self.last = (k, value, w)
            self.history.append(value)
            return report(k, value, w)

        return self.tagger._descend(likelihood, start, threads, note)

    def result(self) -> SolverResult:
        k, value, w = self.last
        return SolverResult(w, value, k, True, self.history, "shard")


class LocalShards:
    """Shards that this process reads itself."""

    def __init__(self, shards: Shards):
        self.shards = shards

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def name(self, k: int) -> str:
        """What messages call shard k."""
        try:
            with named(k, self.shards.sources[k]):
                raise ValueError
        except ShardError as error:
            return str(error).removesuffix(": ")

    def surveys(self) -> list[ShardSurvey]:
        """Look at each shard once, at the sizes of files before that."""
        shards, limit = self.shards, self.shards.max_memory
        for k in range(shards.n_shards):
            self._check_size(k, shards._size(k), limit, "")
        surveys = []
        for k in range(shards.n_shards):
            rows = shards._labelled(k, fit=True)
            with named(k, shards.sources[k]):
                surveys.append(survey_shard(rows))
            del rows
        return surveys

    def _check_size(self, k: int, n_bytes: float, room: float, beside: str) -> None:
        if n_bytes > room:
            raise ValueError(
                f"{self.name(k)} takes about {n_bytes / 1e6:.3g} MB{beside}, and max_memory "
                f"allows {self.shards.max_memory / 1e6:.3g} MB; cut it into smaller shards, or "
                "raise max_memory."
            )

    def likelihood(self, scores, found, surveys, vectorizer, l2, threads) -> ShardedLogLikelihood:
        """The objective."""
        fixed = solver_bytes(scores, threads.n)
        room = self.shards.max_memory - fixed
        for k, one in enumerate(surveys):
            self._check_size(k, one.n_bytes, room, f", weights and solver {fixed / 1e6:.3g} MB")
        return ShardedLogLikelihood(
            scores, found.classes, lambda k: self._again(k, found, vectorizer),
            [k for k, one in enumerate(surveys) if one.n_rows], found.longest,
            room, max(one.n_bytes for one in surveys), l2, threads,
            lambda k: named(k, self.shards.sources[k]),
        )  # fmt: skip

    def _again(self, k: int, found: DataSurvey, vectorizer):
        rows = self.shards._labelled(k, vectorizer)
        if rows.X.shape[1] != found.n_features or rows.X.is_sparse != found.is_sparse:
            raise ValueError(
                f"it has {rows.X.shape[1]} features now, and had {found.n_features} when it was "
                "first read; a shard must hold the same rows each time."
            )
        return rows


def solver_bytes(scores: ScoreMap, n_threads: int) -> float:
    """About what weights, vectors of the solver and buffers take."""
    n = scores.n_weights
    pairs = 12 * (4 if n > 1 << 18 else scores.dtype.itemsize)
    buffers = (n_threads + 1) * scores.design.new_buffer().nbytes
    return n * (5 * scores.dtype.itemsize + pairs + 8) + buffers


# ------------------------------------------------------------------------------------ answers


def predict_shards(tagger: Any, X: Any) -> Any:
    """Labels of all sequences, shard by shard; lazily where Dask has them."""
    check_is_fitted(tagger, "classes_")
    if not isinstance(X, Shards):
        from sklseq._cluster import predict_lazily

        return predict_lazily(tagger, X)
    labels = []
    for k in range(X.n_shards):
        rows = X.read(k)[0]
        with named(k, X.sources[k]):
            labels.append(tagger.predict(rows))
    return np.concatenate(labels)


def score_shards(tagger: Any, X: Any, y: Any, sample_weight: Any) -> float:
    """Share of rows whose label is right; one shard is held at a time."""
    check_is_fitted(tagger, "classes_")
    if isinstance(X, Shards):
        _source(X, y, sample_weight)
        counts = (_count(tagger, X, k) for k in range(X.n_shards))
    else:
        from sklseq._cluster import count_right

        counts = count_right(tagger, X, y)
    right, total = (sum(part) for part in zip(*counts))
    if not total > 0:
        raise ValueError("score needs at least one row of positive weight.")
    return right / total


def _count(tagger: Any, shards: Shards, k: int) -> tuple[float, float]:
    rows, labels, weights = shards.read(k)
    with named(k, shards.sources[k]):
        return tagger._count_right(rows, labels, weights)
