"""Taggers on data in shards: training, prediction and score, here or on a Dask cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from sklseq._lib.threads import Threads
from sklseq.data.labels import Constraints, check_seen, resolve_constraints
from sklseq.data.sequences import Sequences
from sklseq.data.types import ArrayLike, LabelsLike, SequencesLike
from sklseq.estimators.progress import Progress
from sklseq.estimators.shards.shards import ShardError, Shards, named
from sklseq.features import DictFeatures
from sklseq.objectives.likelihood.long import Plan, memory_told
from sklseq.objectives.likelihood.sharded import (
    DataSurvey,
    ShardedLogLikelihood,
    ShardSurvey,
    merge_surveys,
    survey_shard,
)
from sklseq.objectives.scores.design import DenseRows
from sklseq.objectives.scores.score_map import ScoreMap, Support

__all__ = ["fit_shards", "predict_shards", "score_shards"]

# A value in CSR form, in float64.
CSR_BYTES = 12
PLAN = Plan("forward-backward", None, 0, "data in shards")


def fit_shards(tagger: Any, X: SequencesLike, y: LabelsLike, sample_weight: ArrayLike) -> Any:
    """The steps of ``CRFTagger.fit`` on data in shards."""
    data = _source(X, y, sample_weight)
    _check_parameters(tagger, data)
    surveys = data.surveys()
    found = merge_surveys(surveys, lambda k, why: ShardError(f"{data.name(k)}: {why}."))
    vectorizer = None if found.attributes is None else dict_features(found.attributes)
    _check_constraints(tagger, data, surveys, found.classes)
    scores = _score_map(tagger, found)
    start = tagger._starting_point(scores, found.classes, vectorizer)
    progress = Progress(tagger)

    def likelihood(threads: Threads):
        return data.likelihood(scores, found, surveys, vectorizer, tagger.l2, threads)

    def finish(result):
        return tagger._finish(scores, result, found.classes, vectorizer)

    told = (found.classes, vectorizer)
    solve = progress.step if tagger.solver == "adagrad" else progress.descend
    with memory_told(PLAN), data, progress.kept_on(ShardError, finish):
        result = tagger._solve(solve, scores, likelihood, start, told)
    return tagger._finish(scores, result, found.classes, vectorizer)


def _check_parameters(tagger: Any, data: Any) -> None:
    if tagger.solver == "eg":
        raise ValueError(
            "solver='eg' keeps the state of every row in memory, 8 bytes a row and label; with "
            "shards, use solver='auto', 'adagrad', 'lbfgs' or 'owlqn'."
        )
    if tagger.solver == "adagrad" and not isinstance(data, LocalShards):
        raise ValueError(
            "solver='adagrad' goes from one shard to the next, and the workers of a cluster work "
            "side by side; use solver='auto', 'lbfgs' or 'owlqn', or Shards on one machine."
        )
    if tagger.early_stopping:
        raise ValueError(
            "early_stopping=True sets single sequences aside, in memory; with shards, use "
            "early_stopping=False."
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
        from sklseq.estimators.shards.cluster import ClusterShards

        return ClusterShards(X, y)
    if y is not None:
        raise ValueError("Shards hold X and y; leave y out.")
    return LocalShards(X)


def _check_constraints(tagger: Any, data: Any, surveys: list, classes: np.ndarray) -> None:
    allowed = resolve_constraints(tagger.constraints, classes)
    for k, one in enumerate(surveys):
        if one.n_rows:
            at = np.searchsorted(classes, one.classes)
            mine = Constraints(
                allowed.transition[np.ix_(at, at)], allowed.start[at], allowed.end[at]
            )
            check_seen(one.support, mine, one.classes, f", in {data.name(k)}")


def _score_map(tagger: Any, found: DataSurvey) -> ScoreMap:
    L = len(found.classes)
    allowed = resolve_constraints(tagger.constraints, found.classes)
    support: Support = tagger._support(found.support, L)
    rows = found.as_visited() if tagger.solver == "adagrad" else found
    scores = ScoreMap(
        rows.layout(), L, support, allowed, rows.dtype, found.dtype, counts=rows.counts
    )
    scores.largest, scores.n_rows = found.largest, found.n_rows
    return scores


def dict_features(attributes: list) -> DictFeatures:
    """What reads dicts and attribute lists with these columns."""
    features = DictFeatures()
    features.vocabulary_ = dict(zip(attributes, range(len(attributes))))
    features.n_features_out_ = len(attributes)
    return features


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
            rows = shards._labelled(k)
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
        as_csr = not found.is_sparse and not isinstance(scores.design, DenseRows)
        sizes = [one.n_bytes + as_csr * CSR_BYTES * one.n_rows * one.n_features for one in surveys]
        for k, size in enumerate(sizes):
            self._check_size(k, size, room, f", weights and solver {fixed / 1e6:.3g} MB")
        column = None if vectorizer is None else vectorizer.vocabulary_
        return ShardedLogLikelihood(
            scores, found.classes,
            lambda k: self._again(k, found, surveys[k].checksum, column, as_csr),
            [k for k, one in enumerate(surveys) if one.n_rows], found.longest,
            room, max(sizes), l2, threads, lambda k: named(k, self.shards.sources[k]),
        )  # fmt: skip

    def _again(self, k: int, found: DataSurvey, checksum: int, column, as_csr: bool):
        rows = self.shards._labelled(k).again(checksum, column, found.n_features)
        if as_csr:
            return rows._replace(X=Sequences(sparse.csr_matrix(rows.X.rows), rows.X.offsets))
        return rows


def solver_bytes(scores: ScoreMap, n_threads: int) -> float:
    """About what weights, ten vectors of the solver, its pairs and buffers take."""
    n = scores.n_weights
    pairs = 12 * (4 if n > 1 << 18 else scores.dtype.itemsize)
    buffers = (n_threads + 1) * scores.design.new_buffer().nbytes
    return n * (10 * scores.dtype.itemsize + pairs + 8) + buffers


# ------------------------------------------------------------------------------------ answers


def predict_shards(tagger: Any, X: SequencesLike) -> Any:
    """Labels of all sequences, shard by shard; lazily where Dask has them."""
    check_is_fitted(tagger, "classes_")
    if not isinstance(X, Shards):
        from sklseq.estimators.shards.cluster import predict_lazily

        return predict_lazily(tagger, X)
    labels = []
    for k in range(X.n_shards):
        rows = X.read(k)[0]
        with named(k, X.sources[k]):
            labels.append(tagger.predict(rows))
    return np.concatenate(labels)


def score_shards(tagger: Any, X: SequencesLike, y: LabelsLike, sample_weight: ArrayLike) -> float:
    """Share of rows whose label is right; one shard is held at a time."""
    check_is_fitted(tagger, "classes_")
    if isinstance(X, Shards):
        _source(X, y, sample_weight)
        counts = (_count(tagger, X, k) for k in range(X.n_shards))
    else:
        from sklseq.estimators.shards.cluster import count_right

        counts = count_right(tagger, X, y)
    right, total = (sum(part) for part in zip(*counts))
    if not total > 0:
        raise ValueError("score needs at least one row of positive weight.")
    return right / total


def _count(tagger: Any, shards: Shards, k: int) -> tuple[float, float]:
    rows, labels, weights = shards.read(k)
    with named(k, shards.sources[k]):
        return tagger._count_right(rows, labels, weights)
