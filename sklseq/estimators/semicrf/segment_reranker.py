"""Reranker of the best segmentations by features of whole segmentations."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.feature_extraction import DictVectorizer
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.validation import check_is_fitted

from sklseq._lib.checks import check_number, is_number
from sklseq._lib.estimator import (
    LabellerBase,
    as_fitted,
    clone_part,
    fitted_parameter,
    set_fitted,
)
from sklseq._lib.ragged import offsets_of
from sklseq._lib.signatures import takes
from sklseq.data.segment_labels import (
    Span,
    labels_of_segments,
    list_of_segments,
    read_triples,
)
from sklseq.data.sequences import training_weights
from sklseq.data.tables import protected
from sklseq.data.types import ArrayLike, ColumnsLike, LabelsLike, SequencesLike, ValidLike
from sklseq.estimators.folds import as_list, of_positive_weight, take
from sklseq.estimators.label_output import LabelOutputMixin, as_chosen
from sklseq.estimators.semicrf.segment_program import read_potentials
from sklseq.estimators.semicrf.semicrf_segmenter import SemiCRFSegmenter, segment_f1
from sklseq.estimators.semicrf.whole_features import fit_texts, texts_log_proba, whole_features
from sklseq.estimators.unwrap import fit_weighted, last_step, unwrap
from sklseq.estimators.valid_paths import segmentation_rule
from sklseq.estimators.validation import check_handle_invalid
from sklseq.features import SegmentFeatures, _columns
from sklseq.inference.chain.once import NoValidAnswerError
from sklseq.objectives.segment.candidate_margin import CandidateMargin, softmax_of_lists
from sklseq.solvers import lbfgs


class Candidates(NamedTuple):
    """The best segmentations of one sequence, best first.

    Attributes
    ----------
    segments : list of lists of (start, stop, label)
    scores : ndarray of shape (n_candidates,)
        Of the segmenter.
    features : list of dicts
        Features of each segmentation.
    """

    segments: list
    scores: np.ndarray
    features: list[dict[str, float]]


class Data(NamedTuple):
    """Training data: sequences, their segments as given and as triples, tokens and weights."""

    X: Any
    y: list
    tokens: list
    truth: list[list[tuple[int, int, str]]]
    weights: np.ndarray | None

    def select(self, which: np.ndarray) -> Data:
        """The sequences of these numbers."""
        lists = (take(values, which) for values in self[:4])
        return Data(*lists, None if self.weights is None else self.weights[which])


class SegmentReranker(LabelOutputMixin, LabellerBase, BaseEstimator):
    """Chooses among the best segmentations of a segmenter, by features of whole segmentations.

    A segmenter scores segments and neighbouring labels. The right segmentation is often not its
    best, but among its 25 best. This model scores each of them, c, by

        log p(c) + w · φ(c),

    where φ has pairs of successive labels, counts and order of labels, lengths and punctuation of
    segments, and log p(label | letters of the segment). w minimises the softmax-margin over the
    candidates, whose cost is the number of missing or wrong segments. The candidates of a training
    sequence come from a model of another fold, which was not trained on it (Collins and Koo 2005).

    Parameters
    ----------
    estimator : SemiCRFSegmenter, Pipeline that ends in one, or search of these, default=None
        None: ``SegmentFeatures(min_count=2)`` and ``SemiCRFSegmenter(loss="softmax-margin")``. A
        search such as ``GridSearchCV`` is fitted once, on all sequences; the models of the folds
        have the parameters that it chooses.
    n_candidates : int, default=25
        Segmentations of each sequence.
    cv : int, default=5
        Folds. Training takes the time of ``cv + 1`` segmenters.
    l2 : float, default=1.0
        Weight of the squared L2 penalty of w.
    text : bool, default=True
        Whether φ has features of the tokens: letters and punctuation of fields. X then holds
        tokens, not rows of numbers.
    columns : str or int, default=None
        The column of tokens for ``text``. None: the only one.
    functions : list of callables, default=None
        Further features: ``f(tokens, segments)`` returns a dict of names to numbers. ``tokens`` is
        the sequence as it is in X (a copy, of arrays a read-only view), ``segments`` a list of
        (start, stop, label).

    Attributes
    ----------
    estimator_ : estimator
        Fitted on all sequences; for a search, its best estimator.
    vectorizer_ : DictVectorizer
        Names of the features.
    coef_ : ndarray of shape (n_features,)
    text_model_ : Pipeline or None
        Model of p(label | letters of a segment).
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        As in ``estimator_``, if it has them.

    References
    ----------
    M. Collins, T. Koo (2005), "Discriminative reranking for natural language parsing",
    Computational Linguistics 31(1).

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklseq import SegmentReranker, SemiCRFSegmenter
    >>> from sklseq.datasets import make_citations
    >>> from sklseq.features import SegmentFeatures
    >>> X, y = make_citations(30, random_state=0)
    >>> model = make_pipeline(SegmentFeatures(min_count=2), SemiCRFSegmenter())
    >>> model = SegmentReranker(model, cv=2).fit(X, y)
    >>> segments, log_proba = model.predict_nbest(X[:1], 3)[0]
    >>> len(segments), segments[0] == model.predict(X[:1])[0]
    (3, True)
    """

    def __init__(
        self,
        estimator: BaseEstimator | None = None,
        *,
        n_candidates: int = 25,
        cv: int = 5,
        l2: float = 1.0,
        text: bool = True,
        columns: ColumnsLike | None = None,
        functions: Sequence[Callable[[Any, list], Mapping[str, float]]] | None = None,
    ):
        self.estimator = estimator
        self.n_candidates = n_candidates
        self.cv = cv
        self.l2 = l2
        self.text = text
        self.columns = columns
        self.functions = functions

    def fit(self, X: SequencesLike, y: LabelsLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train a segmenter for each fold, one on all sequences, and the weights w.

        Parameters
        ----------
        X : list of sequences
            As the segmenter takes it; tokens, unless ``text=False``.
        y : list of lists of (start, stop, label), or of IOB2 label sequences
            Segments of all steps; unknown segments (label None) are not allowed.
        sample_weight : array-like of shape (n_sequences,), optional
            Weights of sequences for the segmenters, the model of letters and w; a sequence of
            weight 0 is left out. With metadata routing, call ``set_fit_request``.

        Returns
        -------
        SegmentReranker
            The estimator itself.
        """
        self._check_parameters()
        X, y = as_list(X), list(list_of_segments(y))
        given = None if sample_weight is None else training_weights(sample_weight, len(y))
        X, y, weights = of_positive_weight(X, y, given)
        base = self._base()
        truth = read_triples(y, last_step(unwrap(base, fitted=False))[0].outside)
        if self.cv > len(y):
            raise ValueError(
                f"cv={self.cv} folds need as many sequences of a weight above 0; got {len(y)}."
            )
        model = unwrap(fit_weighted(clone(base), X, y, weights))
        data = Data(X, y, self._tokens(X), truth, weights)
        names = {"n_features_in_", "feature_names_in_"}
        fitted = {name: getattr(model, name) for name in names if hasattr(model, name)}
        fitted |= self._fit_weights(self._candidates_of_folds(model, data), data)
        fitted |= {"estimator_": model, "text_model_": self._fit_texts(data)}
        fitted["_fitted_parameters"] = {
            name: getattr(self, name) for name in ("n_candidates", "text", "columns", "functions")
        }
        set_fitted(self, fitted, names)
        return self

    def _candidates_of_folds(self, model: BaseEstimator, data: Data) -> list[Candidates]:
        # The candidates of each sequence by a model that was trained on the other folds.
        lists: list = [None] * len(data.y)
        for train, test in KFold(self.cv, shuffle=True, random_state=0).split(data.y):
            part, held_out = data.select(train), data.select(test)
            segmenter = fit_weighted(clone(model), part.X, part.y, part.weights)
            texts = self._fit_texts(part)
            found = self._candidates(segmenter, texts, held_out.X, held_out.tokens)
            for s, one in zip(test, found):
                lists[s] = one
        return lists

    def _fit_weights(self, lists: list[Candidates], data: Data) -> dict[str, Any]:
        # The weights w, their number of iterations, and the vectorizer of features.
        vectorizer = DictVectorizer().set_output(transform="default")  # its rows are sparse
        rows = vectorizer.fit_transform([row for one in lists for row in one.features]).tocsr()
        cost = [_cost(c, true) for one, true in zip(lists, data.truth) for c in one.segments]
        objective = CandidateMargin(
            rows, np.concatenate([one.scores for one in lists]), np.array(cost, dtype=float),
            _offsets(lists), self.l2,
            np.ones(len(lists)) if data.weights is None else data.weights,
        )  # fmt: skip
        result = lbfgs(objective, np.zeros(rows.shape[1]), tol=1e-3, convexity=2 * float(self.l2))
        return {"vectorizer_": vectorizer, "coef_": result.w, "n_iter_": result.n_iter}

    def _check_parameters(self) -> None:
        for name, least in (("n_candidates", 1), ("cv", 2)):
            check_number(name, getattr(self, name), least, whole=True)
        if not is_number(self.l2) or not 0 < self.l2 < np.inf:
            raise ValueError(f"l2 must be a finite number above 0; got {self.l2!r}.")
        if not isinstance(self.text, (bool, np.bool_)):
            raise ValueError(f"text must be True or False; got {self.text!r}.")
        functions = self.functions or []
        if not isinstance(functions, Collection) or not all(map(callable, functions)):
            raise ValueError(f"functions must be None or a list of functions; got {functions!r}.")
        for function in functions:
            if not takes(function, 2):
                raise ValueError(
                    "functions must take two arguments, (tokens, segments); got "
                    f"{_name_of(function)}."
                )

    def _base(self) -> BaseEstimator:
        # The segmenter, not fitted.
        if self.estimator is None:
            segmenter = SemiCRFSegmenter(loss="softmax-margin")
            return make_pipeline(SegmentFeatures(min_count=2), segmenter)
        base = clone_part(self, "estimator")
        if not hasattr(last_step(unwrap(base, fitted=False))[0], "decode_closure"):
            raise TypeError(
                "estimator must be a SemiCRFSegmenter, a Pipeline that ends in one, or a search of "
                f"these; got {self.estimator!r:.60}."
            )
        if not getattr(base, "refit", True):
            raise ValueError("estimator must be a search that fits its best model; use refit=True.")
        return base

    # ------------------------------------------------------------------ candidates

    def _tokens(self, X: Any) -> list:
        # The strings of each sequence, or None.
        if not self.text:
            return [None] * len(X)
        columns = _columns.read_columns(X)
        name = _columns.select_columns(self, columns)[0]
        return [list(map(str, _columns.column_list(x))) for x in columns.raw(name)]

    def _fit_texts(self, data: Data) -> Pipeline | None:
        return fit_texts(data.tokens, data.truth, data.weights) if self.text else None

    def _candidates(
        self, model: Any, texts: Pipeline | None, X: Any, tokens: list
    ) -> list[Candidates]:
        segmenter, rows = last_step(model, X)
        best = segmenter.predict_nbest(rows, int(self.n_candidates))
        functions = self.functions or []
        likely = texts_log_proba(texts, tokens, [found for found, _ in best])
        lists = []
        for x, words, (found, scores), values in zip(X, tokens, best, likely):
            dicts = [dict(features) for features in whole_features(found, words)]
            seen = protected(x) if functions else x
            for segments, row, score, value in zip(found, dicts, scores - scores[0], values):
                row |= {"score": float(score), "text": value}
                for function in functions:
                    row |= _features_of(function, seen, segments[:])
            lists.append(Candidates(found, scores, dicts))
        return lists

    def _ranked(self, X: SequencesLike) -> list[tuple[list, np.ndarray]]:
        # (segmentations, log-probabilities among them) of each sequence, best first.
        check_is_fitted(self, "coef_")
        X = as_list(X)
        if not len(X):
            return []
        fitted = as_fitted(self)
        lists = fitted._candidates(self.estimator_, self.text_model_, X, fitted._tokens(X))
        features = self.vectorizer_.transform([row for one in lists for row in one.features])
        scores = np.concatenate([one.scores for one in lists]) + features @ self.coef_
        offsets = _offsets(lists)
        _, log_z = softmax_of_lists(scores, offsets)
        ranked = []
        for one, a, b, z in zip(lists, offsets[:-1], offsets[1:], log_z):
            order = np.argsort(-scores[a:b], kind="stable")
            ranked.append(([one.segments[k] for k in order], scores[a:b][order] - z))
        return ranked

    # ------------------------------------------------------------------ answers

    def predict(
        self, X: SequencesLike, *, valid: ValidLike | None = None, handle_invalid: str = "error"
    ) -> list[list[tuple[int, int, Any]]]:
        """The chosen segmentation of each sequence.

        Parameters
        ----------
        X : list of sequences
        valid : "once", collection of labels, callable or None, default=None
            Which segmentations are valid, as in :meth:`SemiCRFSegmenter.predict`: the best valid
            one of the candidates is chosen.
        handle_invalid : {"error", "best"}, default="error"
            Result for a sequence without a valid candidate: an error for all of X, or its best
            candidate, which is not valid.

        Returns
        -------
        list of list of (start, stop, label)
            After ``set_output(predict="array")`` of this object an object array of these lists; the
            output form of the inner estimator does not matter.

        Raises
        ------
        ValueError
            If ``valid`` has another form, or no candidate of a sequence is valid and
            ``handle_invalid`` is "error".
        """
        check_handle_invalid(handle_invalid)
        check_is_fitted(self, "coef_")
        segmenter = last_step(self.estimator_)[0]
        rule = segmentation_rule(valid, segmenter.classes_, fitted_parameter(segmenter, "outside"))
        ranked = [found for found, _ in self._ranked(X)]
        best = [next((x for x in found if rule(x, s)), None) for s, found in enumerate(ranked)]
        for s, found in enumerate(best):
            if found is None and handle_invalid == "error":
                raise NoValidAnswerError(
                    f"None of the {len(ranked[s])} candidates of sequence {s} is valid; loosen the "
                    "rule valid, raise n_candidates, or use handle_invalid='best'."
                )
        pairs = zip(best, ranked)
        return as_chosen(self, (every[0] if one is None else one for one, every in pairs))

    def predict_labels(self, X: SequencesLike) -> list[list[str]]:
        """The chosen segmentation of each sequence, as IOB2 labels.

        Parameters
        ----------
        X : list of sequences

        Returns
        -------
        list of list of str
            After ``set_output(predict="array")`` an object array of arrays.
        """
        X = as_list(X)
        return as_chosen(self, labels_of_segments(self.predict(X), *self._steps(X)))

    def _steps(self, X: Any) -> tuple[np.ndarray, str | None]:
        # Lengths of the sequences, and the label of steps outside of segments.
        segmenter, rows = last_step(self.estimator_, X)
        lengths = read_potentials(rows, segmenter.vectorizer_)[0].lengths
        return lengths, fitted_parameter(segmenter, "outside")

    def predict_nbest(self, X: SequencesLike, n: int = 10) -> list[tuple[list, np.ndarray]]:
        """The candidates of each sequence, best first, with their log-probabilities among them.

        Parameters
        ----------
        X : list of sequences
        n : int, default=10
            At most ``n_candidates``.

        Returns
        -------
        list of (segmentations, log_proba)
        """
        check_number("n", n, least=1, whole=True)
        return [(found[:n], log_proba[:n]) for found, log_proba in self._ranked(X)]

    def predict_spans(self, X: SequencesLike) -> list[list[Span]]:
        """The segments of :meth:`predict`, with the probability of each.

        Parameters
        ----------
        X : list of sequences

        Returns
        -------
        list of list of Span
            (start, stop, label, probability), where the probability is the sum over the candidates
            that contain the segment.
        """
        answers = []
        for found, log_proba in self._ranked(X):
            proba = dict.fromkeys(found[0], 0.0)
            for p, candidate in zip(np.exp(log_proba).tolist(), found):
                for segment in proba.keys() & candidate:
                    proba[segment] += p
            answers.append([Span(*segment, min(1.0, p)) for segment, p in proba.items()])
        return answers

    def score(
        self, X: SequencesLike, y: LabelsLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """F1 of the predicted segments, micro-averaged.

        Parameters
        ----------
        X : list of sequences
        y : as in :meth:`fit`
        sample_weight : array-like of shape (n_sequences,), optional

        Returns
        -------
        float
        """
        check_is_fitted(self, "coef_")
        X = as_list(X)
        return segment_f1(y, self.predict(X), *self._steps(X), sample_weight)


def _name_of(function: Callable) -> str:
    return getattr(function, "__name__", repr(function))


def _features_of(function: Callable, tokens: Any, segments: list) -> Mapping[str, float]:
    # The features that a user's function returns, checked.
    name = _name_of(function)
    try:
        features = function(tokens, segments)
    except Exception as error:
        raise ValueError(
            f"Function {name} of functions failed with {type(error).__name__}: {error}. It was "
            f"called with the segments {segments!r:.200}."
        ) from error
    if not isinstance(features, Mapping):
        raise ValueError(
            f"Function {name} of functions must return a dict of names to numbers; got "
            f"{features!r:.60}."
        )
    for key, value in features.items():
        if not isinstance(value, (numbers.Real, np.bool_)) or not np.isfinite(value):
            raise ValueError(
                f"Function {name} of functions must return finite numbers; got {value!r:.60} for "
                f"{key!r}."
            )
    return features


def _cost(segments: list, true: list) -> int:
    # Number of missing and wrong segments.
    return len(set(segments) ^ set(true))


def _offsets(lists: list[Candidates]) -> np.ndarray:
    return offsets_of([len(one.segments) for one in lists])
