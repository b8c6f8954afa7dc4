"""Protocol of the sources of training data, and the source of rows in memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from sklseq._lib.threads import Threads
from sklseq.data.column_roles import with_transition_features
from sklseq.data.constraints import Constraints, check_constraints, resolve_constraints
from sklseq.data.labels import encode_labels, read_codes, without_unused
from sklseq.data.sequences import (
    STATE,
    TRANSITION,
    Sequences,
    check_not_empty,
    training_weights,
    weighted_only,
)
from sklseq.data.types import ArrayLike, LabelsLike, SequencesLike
from sklseq.estimators.validation import read_sequences
from sklseq.objectives.likelihood.gradient_plan import Plan
from sklseq.objectives.likelihood.label_curvature import (
    LabelCurvature,
    diagonal_curvature,
    has_chain_block,
    label_curvature,
    n_in_blocks,
)
from sklseq.objectives.likelihood.likelihood import LogLikelihood
from sklseq.objectives.likelihood.row_curvature import (
    MOST_EXACT,
    exact_curvature,
    has_row_curvature,
    row_curvature,
)
from sklseq.objectives.likelihood.stochastic import StochasticLikelihood
from sklseq.objectives.likelihood.summary import Summary, summarise_rows
from sklseq.objectives.scores.centred import CentredColumns, centred_columns
from sklseq.objectives.scores.score_map import ScoreMap, Support, observed_support
from sklseq.objectives.scores.transition_features import observed_triples, possible_triples

# Labels last if half of the rows are in sequences of more than LONG rows, and labels stay the same
# for more than LASTING rows on average. (Documents with 8.8 to 48 rows gain by what depends on it;
# joined sentences of CoNLL-2002 and English Web Treebank, with 5.9 and 1.1, lose.)
LONG, LASTING = 100, 7


class Source(AbstractContextManager):
    """Base class of sources of labelled training sequences; a context that lasts during training.

    Attributes
    ----------
    vectorizer : DictFeatures or None
        Transformer of dicts and attribute lists; known after :meth:`summarise`.
    plan : Plan
        Computation of the gradient; known after :meth:`summarise`.
    error : exception class, or ()
        Raised if data cannot be read again during training.
    lacks : dict
        Solvers ("dual", "adagrad") and options ("early_stopping", "gradient") that the source does
        not support, with the message; ``{solver}`` and ``{gradient}`` are the parameters.
    roles : ndarray of shape (n_features,), or None
        ``Sequences.roles`` of the columns.
    cause : str
        Reason why data is processed in blocks; ``{cause}`` in these messages.
    split : str
        What a splitter in ``validation_fraction`` sets aside: "sequences" or "shards".
    """

    vectorizer: Any = None
    plan: Plan
    error: Any = ()
    cause: str = ""
    split = "sequences"
    roles: np.ndarray | None = None
    lacks: ClassVar[dict[str, str]] = {}

    def __exit__(self, *_: object) -> None:
        pass

    def summarise(self) -> Summary:
        """Read all data once."""
        raise NotImplementedError

    def allowed(self, constraints: Any, classes: np.ndarray) -> Constraints:
        """Return masks of the parameter ``constraints``; raise if labels violate it."""
        allowed = resolve_constraints(constraints, classes, self.place_of)
        self.check_constraints(allowed)
        return allowed

    def place_of(self, label: int) -> str:
        """Position of the first occurrence of a label in y, for messages; "" if unknown."""
        return ""

    def check_constraints(self, allowed: Constraints) -> None:
        """Raise if labels violate a constraint."""
        raise NotImplementedError

    def layout(self, summary: Summary, single_sequences: bool) -> tuple[Sequences, Summary]:
        """Return the rows that the layout of w is made for, and their summary.

        ``single_sequences``: whether the solver updates weights after each sequence, which needs
        sparse rows.
        """
        summary = summary.for_single_sequences() if single_sequences else summary
        return summary.layout(), summary

    def likelihood(self, scores: ScoreMap, l2: float, threads: Threads) -> Any:
        """Return the objective without its L1 term: a sum over all parts of the data."""
        raise NotImplementedError

    def with_triples(
        self, support: Support, chosen: Any, all_pairs: bool, n_features: int
    ) -> Support:
        """Return the support with weights of transition features, and without state weights of
        columns that have transition weights only.

        ``chosen``: as the parameter ``transition_features``, in addition to ``roles``.
        ``all_pairs``: whether a column has a weight for all pairs of labels, or only for pairs seen
        in training.
        """
        names = None if self.vectorizer is None else self.vectorizer.get_feature_names_out
        roles = with_transition_features(chosen, n_features, self.roles, names)
        if roles is None:
            return support
        L = len(support.start)
        columns, state = np.flatnonzero(roles & TRANSITION), roles & STATE > 0
        pairs = support.pairs
        if not state.all():
            has_weight = np.repeat(state, L)
            pairs = np.flatnonzero(has_weight) if pairs is None else pairs[has_weight[pairs]]
        if all_pairs:
            triples = possible_triples(columns, support.transition)
        else:
            triples = self.seen_triples(columns)
        return support._replace(pairs=pairs, triples=triples, roles=roles)

    def seen_triples(self, columns: np.ndarray) -> np.ndarray:
        """Weights (column, label, next label) that occur, see ``Support.triples``."""
        raise NotImplementedError

    @property
    def can_grow(self) -> bool:
        """Whether many weights may be trained as a growing set of them."""
        return False

    def convexity(self, l2: float) -> float:
        """m such that the objective minus m/2 · ‖w‖² is convex; 0 if it is not."""
        return 2 * l2

    def stochastic(self, likelihood: Any, l1: float, start: np.ndarray) -> Any:
        """Return the objective for updates after single sequences; ``start`` is overwritten."""
        raise NotImplementedError

    @property
    def has_long_sequences(self) -> bool:
        """Whether half of the rows are known to be in sequences of more than LONG rows."""
        return False

    @property
    def has_lasting_labels(self) -> bool:
        """Whether sequences are long, and labels are known to last for more than LASTING rows."""
        return False

    def curvature(self, likelihood: Any, w: np.ndarray) -> LabelCurvature | None:
        """Second derivatives of the likelihood in weights of frequent features, or None."""
        return None

    def has_curvature_of_all(self, scores: ScoreMap) -> bool:
        """Whether `curvature` has the weights of all features."""
        return False

    def has_curvature_of_chain(self, scores: ScoreMap) -> bool:
        """Whether `curvature` has the weights of transitions, first and last labels."""
        return False

    def centred(self, scores: ScoreMap, l2: float) -> CentredColumns | None:
        """Gradients in weights of centred columns; None if all column means are near 0."""
        return None

    def diagonal(self, likelihood: Any) -> Callable[[np.ndarray], np.ndarray] | None:
        """Function of w: second derivatives in each weight; None where features are alike."""
        return None if likelihood.scores.largest is None else self.diagonal_of(likelihood)

    def diagonal_of(self, likelihood: Any) -> Callable[[np.ndarray], np.ndarray] | None:
        """The same, whether or not features are alike; None if it is not known."""
        return None

    def row_curvature(self, likelihood: Any) -> list[Callable[[np.ndarray], LabelCurvature]]:
        """Functions of w: second derivatives in all weights, the best last; none is expensive."""
        return []


class RowSource(Source):
    """Sequences in memory, packed into one matrix of rows.

    Parameters
    ----------
    X : Sequences
    codes : int32 ndarray of shape (n_rows,)
    classes : ndarray of shape (n_labels,)
    weights : ndarray of shape (n_sequences,), optional
    vectorizer : DictFeatures, optional

    Attributes
    ----------
    numbers : ndarray of shape (n_sequences,)
        Numbers of the sequences among all ``n_given`` sequences of the user.
    """

    def __init__(self, X: Sequences, codes, classes, weights=None, vectorizer=None):
        self.X, self.codes, self.classes, self.vectorizer = X, codes, classes, vectorizer
        self.weights = np.ones(len(X)) if weights is None else weights
        self.numbers, self.n_given = np.arange(len(X)), len(X)
        self.roles = X.roles

    @classmethod
    def read(cls, X: SequencesLike, y: LabelsLike, sample_weight: ArrayLike | None) -> RowSource:
        """Read and check X, y and weights of the user; sequences of weight 0 are left out.

        ``source.given`` keeps the rows and weights of all sequences.
        """
        rows, vectorizer = read_sequences(X, fit=True)
        weights = training_weights(sample_weight, len(rows))
        source = cls.of_rows(rows, y, weights, vectorizer)
        source.given = rows, weights
        return source

    @classmethod
    def of_rows(
        cls, X: Sequences, y: LabelsLike, weights: np.ndarray, vectorizer: Any, classes=None
    ) -> RowSource:
        """Check y; sequences of weight 0 are left out. ``classes``: by default the labels of y."""
        (found, codes), given = read_codes(y, X), (np.flatnonzero(weights > 0), len(X))
        X, codes, weights = weighted_only(X, codes, weights)
        check_not_empty(X)
        if classes is not None:
            codes = encode_labels(found[codes], classes, X.offsets)
        else:
            classes, codes = without_unused(found, codes)
        source = cls(X, codes, classes, weights, vectorizer)
        source.numbers, source.n_given = given
        return source

    @property
    def choices(self) -> np.ndarray:
        """Label for each code."""
        return self.classes

    @property
    def table(self) -> np.ndarray:
        """The labels that each code allows, bool of shape (n_codes, n_labels)."""
        return np.eye(len(self.classes), dtype=bool)

    @property
    def can_grow(self) -> bool:
        return self.X.is_sparse

    @property
    def lengths(self) -> np.ndarray:
        """Rows of each sequence."""
        return self.X.lengths

    def set_aside(self, numbers: np.ndarray) -> tuple[Sequences, list]:
        """Remove some sequences from the training data; return their X and y."""
        self.weights = self.weights.copy()
        self.weights[numbers] = 0
        return self.X[numbers], self.labels_of(numbers)

    def labels_of(self, numbers: np.ndarray) -> list:
        """Labels of some sequences, as in y."""
        choices, at = self.choices, self.X.offsets
        return [choices[self.codes[at[s] : at[s + 1]]] for s in numbers]

    def summarise(self) -> Summary:
        support = observed_support(self.X, self.codes, len(self.classes))
        return summarise_rows(self.X, self.classes, support)

    def place_of(self, label: int) -> str:
        rows = np.flatnonzero(self.codes == label)
        if not len(rows):
            return ""
        s = int(np.searchsorted(self.X.offsets, rows[0], side="right")) - 1
        return f" at row {rows[0] - self.X.offsets[s]} of sequence {self.numbers[s]}"

    def check_constraints(self, allowed: Constraints) -> None:
        check_constraints(self.codes, self.X.offsets, allowed, self.classes)

    def layout(self, summary: Summary, single_sequences: bool) -> tuple[Sequences, Summary]:
        if not single_sequences:
            return self.X, summary
        rows = Sequences(sparse.csr_matrix(self.X.rows), self.X.offsets)
        return rows, summary._replace(is_sparse=True, single=False)

    def seen_triples(self, columns: np.ndarray) -> np.ndarray:
        return observed_triples(self.X, columns, self.codes, len(self.classes))

    def likelihood(self, scores: ScoreMap, l2: float, threads: Threads) -> LogLikelihood:
        offsets, weights = self.X.offsets, self.weights
        return LogLikelihood(scores, self.codes, offsets, weights, l2, threads)

    def part(self, s: int) -> RowSource:
        """Source of sequence s alone, with the label codes of all sequences."""
        rows = slice(self.X.offsets[s], self.X.offsets[s + 1])
        return RowSource(self.X[s : s + 1], self.codes[rows], self.classes, self.weights[s : s + 1])

    def stochastic(self, likelihood: LogLikelihood, l1: float, start) -> StochasticLikelihood:
        return StochasticLikelihood(likelihood, l1, start)

    @property
    def has_long_sequences(self) -> bool:
        lengths = self.X.lengths
        return bool(2 * lengths[lengths > LONG].sum() > lengths.sum())

    @property
    def has_lasting_labels(self) -> bool:
        n_runs = len(self.X) + np.count_nonzero(np.diff(self.codes))
        return self.has_long_sequences and self.X.n_rows > LASTING * n_runs

    def curvature(self, likelihood: LogLikelihood, w: np.ndarray) -> LabelCurvature | None:
        return label_curvature(likelihood, self.X, w) if self.X.is_sparse else None

    def has_curvature_of_all(self, scores: ScoreMap) -> bool:
        n = scores.n_features
        return self.X.is_sparse and n_in_blocks(n, scores.n_labels, self.X.n_rows) == n

    def has_curvature_of_chain(self, scores: ScoreMap) -> bool:
        return self.X.is_sparse and has_chain_block(scores, self.X.n_rows)

    def centred(self, scores: ScoreMap, l2: float) -> CentredColumns | None:
        return centred_columns(scores, self.X.rows, l2)

    def diagonal_of(self, likelihood: LogLikelihood) -> Callable[[np.ndarray], np.ndarray]:
        return partial(diagonal_curvature, likelihood)

    def row_curvature(self, likelihood: Any) -> list[Callable[[np.ndarray], LabelCurvature]]:
        if not has_row_curvature(likelihood.scores):
            return []
        rough = partial(row_curvature, likelihood, self.X)
        exact = partial(exact_curvature, likelihood)
        return [rough, exact] if likelihood.scores.n_weights <= MOST_EXACT else [rough]
