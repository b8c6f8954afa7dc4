"""Search over penalties in one ``fit``: cross-validation along paths of models."""

import itertools
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from scipy.stats import rankdata
from sklearn import get_config
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv
from sklearn.utils import Bunch
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing

from sklseq._lib.available import missing_if
from sklseq._lib.callbacks import with_callbacks
from sklseq._lib.checks import is_number
from sklseq._lib.estimator import check_plain_parameters, set_fitted
from sklseq._lib.threads import Threads
from sklseq.data.column_roles import check_choice_of_columns, with_transition_features
from sklseq.data.constraints import constraints_of_part
from sklseq.data.labels import PartialLabelError, read_labels, split_labels
from sklseq.data.partial_labels import PartialLabels, labels_in
from sklseq.data.sequences import Sequences, check_not_empty, training_weights
from sklseq.data.types import ArrayLike, LabelsLike, SequencesLike
from sklseq.estimators.folds import (
    check_finite,
    read_folds,
    read_number,
    read_scorer,
    scorer_weights,
)
from sklseq.estimators.validation import read_sequences
from sklseq.objectives.likelihood.proportions import find_columns

FIRST_FOLDS = 2  # number of folds on which racing compares all points


class Data(NamedTuple):
    """Labelled sequences, read once for all models."""

    rows: Sequences
    y: np.ndarray
    weights: np.ndarray
    vectorizer: Any

    @classmethod
    def read(cls, X: SequencesLike, y: LabelsLike, sample_weight: ArrayLike | None) -> Self:
        """Read and check X, y and weights of the user."""
        rows, vectorizer = read_sequences(X, fit=True)
        check_not_empty(rows)
        try:
            labels = read_labels(y, rows)
        except PartialLabelError:
            labels = PartialLabels.read(y, rows).items()
        labels = split_labels(labels, rows.offsets)
        return cls(rows, labels, training_weights(sample_weight, len(rows)), vectorizer)

    def restrict(self, tagger: Any, labels: np.ndarray) -> None:
        """Restrict constraints and a loss matrix to the labels of some sequences."""
        given, loss = tagger.constraints, getattr(tagger, "loss", None)
        if (given is None or isinstance(given, str)) and (loss is None or isinstance(loss, str)):
            return
        every = labels_in(np.concatenate(self.y[self.weights > 0]))
        seen = np.isin(every, labels_in(np.concatenate(labels)))
        tagger.constraints = constraints_of_part(given, every, seen)
        if loss is not None and np.shape(loss) == (len(every), len(every)):
            tagger.loss = np.asarray(loss)[np.ix_(seen, seen)]

    def number_columns(self, tagger: Any) -> None:
        """Replace column names in ``label_proportions`` by numbers: ``rows`` have no names."""
        given = getattr(tagger, "label_proportions", None)
        if self.vectorizer is None or not isinstance(given, Mapping):
            return
        columns = [column for column, value in given.items() if isinstance(value, Mapping)]
        numbers = dict(zip(columns, find_columns(columns, self.rows, self.vectorizer)))
        tagger.label_proportions = {
            numbers[key] if isinstance(p, Mapping) else key: p for key, p in given.items()
        }


class Path(Protocol):
    """Models of one training set, each started from the models before it.

    Attributes
    ----------
    test : Sequences
        Held-out sequences, in the form that the models read.
    """

    test: Sequences

    def fit(self, point: dict[str, float]) -> tuple[Any, bool]:
        """Return a tagger fitted with these penalties, and whether its solver converged."""


class Axis(NamedTuple):
    """One searched parameter.

    Attributes
    ----------
    name : str
    values : ndarray
        In the order given.
    order : ndarray
        Positions from the strongest penalty to the weakest.
    """

    name: str
    values: np.ndarray
    order: np.ndarray


def read_grid(name: str, grid: Any, decades: tuple[float, float], *, zero: bool) -> np.ndarray:
    """Return the values of a grid: a list, or n values between 10 to the power of ``decades``.

    ``zero``: whether 0 is allowed.
    """
    if is_number(grid, whole=True) and grid > 0:
        return np.logspace(*decades, int(grid))
    try:
        values = np.array(grid, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        values = np.zeros(0)
    allowed = np.isfinite(values) & ((values >= 0) if zero else (values > 0))
    if values.ndim != 1 or not len(values) or not allowed.all():
        least = "of at least 0" if zero else "above 0"
        raise ValueError(
            f"{name} must be a list of finite numbers {least}, or the number of values to try, an "
            f"integer of at least 1; got {grid!r:.60}."
        )
    return values


class NoPartialFitMixin:
    """No ``partial_fit``; the attribute ``_in_parts`` names the alternative."""

    _in_parts: str

    @missing_if(
        lambda tagger: f"cross-validation needs all sequences; use fit, or {tagger._in_parts}."
    )
    def partial_fit(
        self,
        X: SequencesLike,
        y: LabelsLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Any:
        """Missing, as cross-validation needs all sequences.

        Parameters
        ----------
        X, y, classes, sample_weight : ignored

        Raises
        ------
        AttributeError
            Always, when the attribute is read.
        """


class PenaltySearchMixin(NoPartialFitMixin):
    """``fit`` and ``score`` of taggers that find their penalties by cross-validation.

    Subclasses have the parameters ``cv``, ``scoring``, ``refit``, ``racing``, ``n_jobs`` and
    ``verbose``, and define the methods below that raise, and ``_plain``, the class of the tagger
    with given penalties.
    """

    _plain: Any

    def _tagger(self, point: dict[str, float], n_jobs: int | None) -> Any:
        """An unfitted tagger with these penalties, its parameters checked."""
        own = self.get_params(deep=False)
        shared = {name: own[name] for name in self._plain().get_params() if name in own}
        if "transition_features" in shared:  # the roles of the rows have these columns
            shared["transition_features"] = None
        tagger = self._plain(**shared).set_params(n_jobs=n_jobs, **point)
        tagger._check_parameters()
        return tagger

    def _check_parameters(self) -> None:
        raise NotImplementedError  # `_tagger` checks

    def _axes(self) -> list[Axis]:
        # The searched parameters, checked.
        raise NotImplementedError

    def _paths(self, data: Data) -> Callable[[np.ndarray, np.ndarray], Path]:
        # Function from numbers of training and test sequences to a Path.
        raise NotImplementedError

    @with_callbacks(max_subtasks=lambda tagger: None)
    def fit(
        self,
        X: SequencesLike,
        y: LabelsLike | None = None,
        sample_weight: ArrayLike | None = None,
        **params: Any,
    ) -> Any:
        """Choose the penalties by cross-validation, then train with them on all sequences.

        Parameters
        ----------
        X : list of sequences
            In any form that holds single sequences in memory.
        y : list of label sequences
        sample_weight : array-like of shape (n_sequences,), optional
            Weights in training and in scores.
        **params : dict
            Without metadata routing, only ``groups`` for the splitter; with it, the metadata that
            splitter and scorer request.

        Returns
        -------
        estimator
            The estimator itself.
        """
        axes, racing = self._axes(), self._check_search()
        check_choice_of_columns(getattr(self, "transition_features", None))
        strongest = {axis.name: float(axis.values[axis.order[0]]) for axis in axes}
        self._tagger(strongest, self.n_jobs)
        routed = self._routed(sample_weight, params)
        data = self._with_roles(Data.read(X, y, sample_weight))
        folds = self._folds(data, routed)
        run = _Run(self, data, axes, folds, routed.scorer.score)
        run.score_all(racing)
        best = run.best()
        found = run.attributes(best)
        if self.refit:
            found |= self._refitted(data, run.point(best))
        self._replace(found)
        return self

    def _with_roles(self, data: Data) -> Data:
        # Set roles now: columns may be chosen by names, which rows do not have.
        rows, names = data.rows, data.vectorizer and data.vectorizer.get_feature_names_out
        chosen = getattr(self, "transition_features", None)
        roles = with_transition_features(chosen, rows.shape[1], rows.roles, names)
        return data._replace(rows=Sequences(rows.rows, rows.offsets, roles))

    def _folds(self, data: Data, routed: Bunch) -> list:
        rows = data.rows.lengths > 0
        weighted = rows & (data.weights > 0)
        test_rows = weighted if "sample_weight" in routed.scorer.score else rows
        return read_folds(self.cv, data.y, weighted, test_rows, **routed.splitter.split)

    def _refitted(self, data: Data, point: dict[str, float]) -> dict[str, Any]:
        tagger = self._tagger(point, self.n_jobs)
        data.number_columns(tagger)
        tagger.fit(data.rows, data.y, data.weights)
        fitted = {k: v for k, v in vars(tagger).items() if k not in tagger.get_params(deep=False)}
        fitted["vectorizer_"] = data.vectorizer
        if data.vectorizer is not None:
            fitted["feature_names_in_"] = data.vectorizer.get_feature_names_out()
        return fitted

    def _replace(self, found: dict[str, Any]) -> None:
        set_fitted(self, found, {name for name in vars(self) if name.endswith("_")})

    def _check_search(self) -> float | None:
        check_plain_parameters(self)
        racing = self.racing
        if racing is None:
            return None
        if not is_number(racing) or not racing >= 0:
            raise ValueError(
                f"racing must be None or a difference of scores of at least 0; got {racing!r}."
            )
        return float(racing)

    def _scorer(self) -> Callable[..., float] | None:
        # None: use the method `score` of taggers
        return read_scorer(self.scoring)

    # ------------------------------------------------------------------ metadata

    def get_metadata_routing(self) -> MetadataRouter:
        """Routing of the metadata of ``fit`` and ``score`` to the splitter and the scorer.

        Returns
        -------
        MetadataRouter
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        to_splitter = MethodMapping().add(caller="fit", callee="split")
        router = router.add(splitter=check_cv(self.cv), method_mapping=to_splitter)
        scorer = self._scorer()
        if not hasattr(scorer, "get_metadata_routing"):
            return router
        to_scorer = MethodMapping().add(caller="fit", callee="score")
        return router.add(
            scorer=scorer, method_mapping=to_scorer.add(caller="score", callee="score")
        )

    def _routed(self, sample_weight: ArrayLike | None, params: dict[str, Any]) -> Bunch:
        weight = {} if sample_weight is None else {"sample_weight": sample_weight}
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", **weight, **params)
            if "scorer" not in routed:
                routed["scorer"] = Bunch(score=weight)
            return routed
        if unknown := params.keys() - {"groups"}:
            raise TypeError(
                f"fit takes sample_weight and groups; got {sorted(unknown)[0]!r}. For metadata of "
                "splitters and scorers, call sklearn.set_config(enable_metadata_routing=True)."
            )
        weight = scorer_weights(self._scorer(), weight)
        return Bunch(splitter=Bunch(split=params), scorer=Bunch(score=weight))

    def score(
        self,
        X: SequencesLike,
        y: LabelsLike | None = None,
        sample_weight: ArrayLike | None = None,
        **params: Any,
    ) -> float:
        """Score by ``scoring``; by default the fraction of rows labelled right.

        Parameters
        ----------
        X : list of sequences
        y : list of label sequences
        sample_weight : array-like of shape (n_sequences,), optional
        **params : dict
            Other metadata of the scorer, with metadata routing.

        Returns
        -------
        float
        """
        scorer = self._scorer()
        if scorer is None:
            return super().score(X, y, sample_weight)  # type: ignore[misc]
        weight = {} if sample_weight is None else {"sample_weight": sample_weight}
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "score", **weight, **params)
            return scorer(self, X, y, **routed.get("scorer", Bunch(score={})).score)
        return scorer(self, X, y, **scorer_weights(scorer, weight), **params)


class _Run:
    """Scores of all points in all folds.

    Parameters
    ----------
    search : PenaltySearchMixin
    data : Data
    axes : list of Axis
    folds : list of (train, test)
    metadata : dict
        Arguments of the scorer; those with one entry for each sequence are cut by folds.

    Attributes
    ----------
    scores, seconds : ndarray of shape (n_folds, n_values, …)
        One axis for each of ``axes``.
    """

    def __init__(self, search: Any, data: Data, axes: list[Axis], folds: list, metadata: dict):
        self.search, self.data, self.axes, self.folds = search, data, axes, folds
        self.metadata, self.scorer = metadata, search._scorer()
        shape = (len(folds), *(len(axis.values) for axis in axes))
        self.scores, self.seconds = np.full((2, *shape), np.nan)
        self.unconverged: list[dict[str, float]] = []

    @property
    def points(self) -> list[tuple[int, ...]]:
        """Positions on the axes, from the strongest penalties to the weakest."""
        return list(itertools.product(*(axis.order.tolist() for axis in self.axes)))

    def point(self, at: tuple[int, ...]) -> dict[str, float]:
        """The penalties at a position."""
        return {axis.name: float(axis.values[k]) for axis, k in zip(self.axes, at)}

    def score_all(self, racing: float | None) -> None:
        """Fill ``scores``; with ``racing``, score points far below the best on first folds only."""
        folds, open_path = range(len(self.folds)), self.search._paths(self.data)
        with Threads(self.search.n_jobs) as threads, threads.without_blas_threads():

            def run(some: range, points: list) -> None:
                threads.map(lambda k: self.score_fold(k, points, open_path), some)

            if racing is None:
                run(folds, self.points)
            else:
                run(folds[:FIRST_FOLDS], self.points)
                run(folds[FIRST_FOLDS:], [at for at in self.points if self.is_open(at, racing)])
        if self.unconverged:
            self.warn()
        self.check_finite()

    def check_finite(self) -> None:
        """Warn about scores that are not finite; raise if no point has a finite score."""
        mean = self.mean()
        bad = ~np.isfinite(self.scores) & np.isfinite(self.seconds)  # points left out have no time
        names = {at: _named(self.point(at)) for at in self.points}
        check_finite(
            type(self.search).__name__,
            {name: float(mean[at]) for at, name in names.items()},
            {name: not bad[(slice(None), *at)].any() for at, name in names.items()},
        )

    def mean(self, folds: int | None = None) -> np.ndarray:
        """Mean scores over the first ``folds`` folds; -inf where a score is not finite."""
        finite = np.isfinite(self.scores[:folds])
        mean = np.where(finite, self.scores[:folds], 0.0).mean(axis=0)
        return np.where(finite.all(axis=0), mean, -np.inf)

    def is_open(self, at: tuple[int, ...], racing: float) -> bool:
        """Whether, in some first fold, a point is within ``racing`` of the point of best mean."""
        first, mean = self.scores[:FIRST_FOLDS], self.mean(FIRST_FOLDS)
        best = np.unravel_index(np.argmax(mean), mean.shape)
        with np.errstate(invalid="ignore"):  # infinite scores
            behind = first[(slice(None), *best)] - first[(slice(None), *at)]
        return bool((behind <= racing).any())

    def score_fold(self, k: int, points: list, open_path: Callable) -> None:
        """Fit and score one path through ``points`` on fold ``k``."""
        train, test = (np.asarray(part) for part in self.folds[k])
        path, truth = open_path(train, test), self.data.y[test]
        if self.scorer is not None:
            truth = [labels.tolist() for labels in truth]  # lists, like predictions
        metadata = {
            name: _cut(value, test, len(self.data.y)) for name, value in self.metadata.items()
        }
        for at in points:
            self.print(f"fold {k}, {_named(self.point(at))}")
            began = perf_counter()
            tagger, converged = path.fit(self.point(at))
            self.seconds[(k, *at)] = perf_counter() - began
            score = tagger.score if self.scorer is None else partial(self.scorer, tagger)
            self.scores[(k, *at)] = read_number(score(path.test, truth, **metadata))
            if not converged:
                self.unconverged.append(self.point(at))
            score_found = self.scores[(k, *at)]
            self.print(f"score {score_found:.6g} of fold {k}, {_named(self.point(at))}")

    def print(self, line: str) -> None:
        if self.search.verbose:
            print(f"[{type(self.search).__name__}] {line}")

    def warn(self) -> None:
        """Name the points where a solver did not converge."""
        name = type(self.search).__name__
        shown = sorted({_named(point) for point in self.unconverged})
        warnings.warn(
            f"{name}: {len(self.unconverged)} of {np.isfinite(self.scores).sum()} models did not "
            f"converge, the first at {shown[0]}; raise max_iter or tol, or leave out the weakest "
            "penalties.",
            ConvergenceWarning,
            stacklevel=4,
        )

    def best(self) -> tuple[int, ...]:
        """The position of the largest mean score; ties go to the strongest penalties."""
        return max(self.points, key=self.mean().__getitem__)

    def attributes(self, best: tuple[int, ...]) -> dict[str, Any]:
        """The fitted attributes of a search."""
        found: dict[str, Any] = {f"{axis.name}s_": axis.values for axis in self.axes}
        found |= {f"{name}_": value for name, value in self.point(best).items()}
        found["scores_"], found["best_score_"] = self.scores, float(self.scores.mean(axis=0)[best])
        found["n_splits_"], found["cv_results_"] = len(self.folds), self.results()
        return found

    def results(self) -> dict[str, Any]:
        """``cv_results_`` in the form of scikit-learn's searches."""
        points = [self.point(at) for at in np.ndindex(self.scores.shape[1:])]
        scores, seconds = (x.reshape(len(self.folds), -1) for x in (self.scores, self.seconds))
        results: dict[str, Any] = {"params": points}
        for axis in self.axes:
            results[f"param_{axis.name}"] = np.array([point[axis.name] for point in points])
        results["mean_fit_time"], results["std_fit_time"] = (
            seconds.mean(axis=0),
            seconds.std(axis=0),
        )
        results |= {f"split{k}_test_score": row for k, row in enumerate(scores)}
        with np.errstate(invalid="ignore"):  # infinite scores
            results["mean_test_score"] = scores.mean(axis=0)
            results["std_test_score"] = scores.std(axis=0)
        ranks = rankdata(-self.mean().ravel(), method="min")
        results["rank_test_score"] = ranks.astype(np.int32)
        return results


def _named(point: dict[str, float]) -> str:
    return ", ".join(f"{name}={value:.6g}" for name, value in point.items())


def _cut(value: Any, chosen: np.ndarray, n: int) -> Any:
    # The entries of the chosen sequences, if ``value`` has one entry for each of n sequences.
    if hasattr(value, "__len__") and not isinstance(value, str) and len(value) == n:
        return np.asarray(value)[chosen]
    return value
