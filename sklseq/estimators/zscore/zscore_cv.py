"""Z-score tagger with cross-validation of its ridge and transition weight."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import BaseCrossValidator

from sklseq._lib.callbacks import with_callbacks
from sklseq._lib.threads import check_n_jobs
from sklseq.data.types import (
    ArrayLike,
    ClassWeightLike,
    ConstraintsLike,
    KernelLike,
    LabelsLike,
    LossLike,
    RandomState,
    SequencesLike,
)
from sklseq.estimators.folds import check_finite, read_folds, read_scorer, scorer_weights
from sklseq.estimators.penalty_search import NoPartialFitMixin, read_grid
from sklseq.estimators.sources.source import RowSource
from sklseq.estimators.validation import check_choices, refuse_roles
from sklseq.estimators.zscore.leave_out_search import LeaveOutSearch, n_entries
from sklseq.estimators.zscore.zscore_problem import ZScoreProblem, warn_columns_without_effect
from sklseq.estimators.zscore.zscore_tagger import ZScoreTagger
from sklseq.objectives.zscore.moments import PairRule

# Parameters passed on to ``ZScoreTagger``.
SHARED = (
    "loss", "transitions", "class_weight", "kernel", "gamma", "degree", "coef0", "n_landmarks",
    "cache_size", "constraints", "refine", "probability", "n_jobs", "random_state",
)  # fmt: skip
FEW_ENTRIES = 4_000_000  # largest matrix, in entries, with leave-one-out by default


class ZScoreTaggerCV(NoPartialFitMixin, ZScoreTagger):
    """:class:`ZScoreTagger` that finds its ridge and transition weight by leaving out sequences.

    A ridge costs one linear solve for each fold, and a transition weight only decoding, as scores
    of rows do not depend on it. With few rows or features each sequence is left out in turn without
    new fits: for every ridge, one eigendecomposition gives the scores of each sequence by weights
    trained on the other sequences.

    Parameters
    ----------
    l2s : array-like of float or int, default=(0.001, 0.01, 0.1, 1.0, 10.0)
        Ridges to try, above 0; an integer n stands for n values between 0.001 and 10, evenly spaced
        on a logarithmic scale.
    transition_weights : iterable, default=(None, 0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, \
0.3, 0.5, 1.0, 2.0, 5.0)
        Values of ``transition_weight`` to try; None is its default.
    cv : int, splitter, iterable, "leave-one-out" or None, default=None
        How sequences are left out: folds as in scikit-learn, or each in turn, in closed form. None:
        each in turn if n_rows · min(n_rows, n_features) is at most 4 million (with a kernel
        n_rows², and without landmarks), else 5 folds, or one for each sequence if there are
        fewer.
    scoring : str, callable or None, default="token_accuracy"
        Scorer of predicted labels, or the name of one in ``sklseq.metrics``, such as "span_f1";
        None is "token_accuracy". A scorer is called as ``scorer(answers, X, y)``, where ``answers``
        only has the method ``predict``.
        "gcv": generalised cross-validation of the regression of labels on rows,
        without decoding or folds (``cv`` must be None); it uses the first transition weight.
    loss : {"hamming"}, array-like, dict, callable or None, default="hamming"
        As in :class:`ZScoreTagger`.
    transitions : {"information", "covariance"}, default="information"
        As in :class:`ZScoreTagger`, whose default "auto" chooses; "covariance" is the method of the
        paper.
    class_weight : dict, "balanced" or None, default=None
        As in :class:`ZScoreTagger`; "balanced" is computed for each fold, or from all rows with
        leave-one-out.
    kernel : {"linear", "poly", "rbf", "precomputed"} or callable, default="linear"
        As in :class:`ZScoreTagger`. One Gram matrix serves all folds, ridges and weights;
        columns of "precomputed" are cut with the folds.
    gamma : {"scale", "auto"} or float, default="scale"
        "scale" is computed from all rows and used in all folds.
    gammas : array-like of float or None, default=None
        Values of ``gamma`` to try, above 0; they replace ``gamma``.
    degree : int, default=3
    coef0 : float, default=0.0
    n_landmarks : int or None, default=None
        As in :class:`ZScoreTagger`; they are drawn from the rows of each fold.
    cache_size : float, default=1000
        As in :class:`ZScoreTagger`.
    constraints : {"iob2", "iobes", "bilou"}, list of tuple, mask (n_labels, n_labels) or None
        Transitions that may occur in predictions, also during cross-validation.
    refine : int, default=0
    probability : bool, default=False
        As in :class:`ZScoreTagger`, for the tagger trained on all sequences; cross-validation does
        not use these two.
    n_jobs : int or None, default=None
        Threads.
    random_state : int, RandomState instance or None, default=None
        Seed of the draw of landmarks.

    Attributes
    ----------
    l2_, transition_weight_ : float
        The best values. Ties go to the largest ridge, the first transition weight and the first
        gamma.
    gamma_ : float
        For "poly" and "rbf": the best value.
    best_score_ : float
        Their score, or minus their criterion for "gcv".
    cv_scores_ : ndarray of shape ([n_gammas,] n_l2s, n_transition_weights)
        All scores: with folds the mean over folds, otherwise the score of all sequences together.
    classes_, coef_, transition_, zscore_, ...
        As in :class:`ZScoreTagger`, trained with the best values on all sequences.

    Raises
    ------
    ValueError
        If n_rows · min(n_rows, n_features) exceeds 100 million with ``cv="leave-one-out"`` or
        ``scoring="gcv"``.

    Notes
    -----
    Leaving out each sequence costs O(n_rows · n_features · k) once, k = min(n_rows, n_features),
    and O(n_rows · k · min(T, k)) for each ridge, in sequences of T rows: with few columns, it is
    linear in the number of rows however long sequences are. Labels equal those of new fits, except
    where two labelings tie up to rounding. This holds for an ``l2`` of at least about 1e-10 times
    the largest squared norm of a column; below, some labels differ.

    Examples
    --------
    >>> from sklseq import ZScoreTaggerCV
    >>> X = [[{"w": "the"}, {"w": "cat"}], [{"w": "a"}, {"w": "dog"}], [{"w": "the"}, {"w": "dog"}]]
    >>> tagger = ZScoreTaggerCV(l2s=[0.1, 1.0]).fit(X, [["D", "N"]] * 3)
    >>> tagger.l2_, tagger.best_score_
    (1.0, 1.0)
    """

    _in_parts = "ZScoreTagger's partial_fit with the l2 found"

    def __init__(
        self,
        *,
        l2s: ArrayLike | int = (0.001, 0.01, 0.1, 1.0, 10.0),
        transition_weights: Iterable[float | None] = (
            None,
            0.0,
            0.01,
            0.02,
            0.05,
            0.1,
            0.15,
            0.2,
            0.3,
            0.5,
            1.0,
            2.0,
            5.0,
        ),
        cv: int | str | BaseCrossValidator | Iterable | None = None,
        scoring: str | Callable[..., float] | None = "token_accuracy",
        loss: LossLike | None = "hamming",
        transitions: str = "information",
        class_weight: ClassWeightLike = None,
        kernel: KernelLike = "linear",
        gamma: str | float = "scale",
        gammas: ArrayLike | None = None,
        degree: int = 3,
        coef0: float = 0.0,
        n_landmarks: int | None = None,
        cache_size: float = 1000,
        constraints: ConstraintsLike | None = None,
        refine: int = 0,
        probability: bool = False,
        n_jobs: int | None = None,
        random_state: RandomState = None,
    ):
        self.l2s = l2s
        self.transition_weights = transition_weights
        self.cv = cv
        self.scoring = scoring
        self.loss = loss
        self.transitions = transitions
        self.class_weight = class_weight
        self.kernel = kernel
        self.gamma = gamma
        self.gammas = gammas
        self.degree = degree
        self.coef0 = coef0
        self.n_landmarks = n_landmarks
        self.cache_size = cache_size
        self.constraints = constraints
        self.refine = refine
        self.probability = probability
        self.n_jobs = n_jobs
        self.random_state = random_state

    @with_callbacks(max_subtasks=lambda tagger: None)
    def fit(
        self,
        X: SequencesLike,
        y: LabelsLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> ZScoreTaggerCV:
        """Choose the ridge and the transition weight, then train on all sequences.

        Parameters
        ----------
        X : list of sequences
        y : list of label sequences
        sample_weight : array-like of shape (n_sequences,), optional
            Weights in training, and in scores if the scorer has an argument sample_weight.
        groups : array-like of shape (n_sequences,), optional
            Groups for the splitter.

        Returns
        -------
        ZScoreTaggerCV
            The estimator itself.
        """
        l2s, weights = self._check_grid()
        scorer = self._scorer()
        self._check_parameters()
        gammas = self._gammas()
        source = RowSource.read(X, y, sample_weight)
        refuse_roles(source.X)
        shared = {name: getattr(self, name) for name in SHARED}
        tagger = ZScoreTagger(**shared)
        weighted = {} if sample_weight is None else {"sample_weight": source.weights}
        is_weighted = bool(scorer_weights(scorer, weighted))
        scoring = scorer, is_weighted, self.scoring in (None, "token_accuracy")
        each = scorer is None or self._leaves_out_each(source)
        rules = [PairRule(self.transitions, weight) for weight in weights]
        folds, scores = None if each else self._folds(source, groups), []
        for gamma in gammas:
            problem = ZScoreProblem(tagger.set_params(gamma=gamma), source)
            search = LeaveOutSearch(problem, l2s, rules, *scoring)
            scores.append(search.each_sequence() if each else search.folds(folds))
            self._warn_unconverged(search)
        g, i, j = _best(np.array(scores), gammas, l2s, weights)
        if gammas[g] != tagger.gamma:
            problem = ZScoreProblem(tagger.set_params(gamma=gammas[g]), source)
        problem.rule = rules[j]
        tagger.set_params(l2=float(l2s[i]), transition_weight=weights[j])
        warn_columns_without_effect(tagger, source)
        best = {"l2_": float(l2s[i]), "best_score_": float(scores[g][i, j])}
        best["cv_scores_"] = scores[0] if self.gammas is None else np.array(scores)
        return self._set(problem, problem.solve(), best)

    def _check_parameters(self) -> None:
        check_n_jobs(self.n_jobs)
        check_choices(self, transitions=("information", "covariance"), probability=(True, False))
        self._check_kernel()
        self._check_refine()

    def _warn_unconverged(self, search: LeaveOutSearch) -> None:
        if search.unconverged:
            warnings.warn(
                "ZScoreTaggerCV did not solve the linear systems of l2="
                f"{sorted(search.unconverged)} within max_iter and tol of ZScoreTagger, so their "
                "scores may be too low; leave these out of l2s.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _check_grid(self) -> tuple[np.ndarray, list[float | None]]:
        l2s = read_grid("l2s", self.l2s, (-3, 1), zero=False)
        weights = self.transition_weights
        weights = list(weights) if np.iterable(weights) and not isinstance(weights, str) else []
        numbers = _as_numbers([0.0 if w is None else w for w in weights])
        if any(isinstance(w, (bool, np.bool_)) for w in weights):
            numbers = np.zeros(0)
        if not len(numbers) or not (np.isfinite(numbers) & (numbers >= 0)).all():
            raise ValueError(
                "transition_weights must be a list of finite numbers of at least 0, or None; got "
                f"{self.transition_weights!r}."
            )
        return l2s, [None if w is None else float(w) for w in weights]

    def _gammas(self) -> list:
        if self.gammas is None:
            return [self.gamma]
        gammas = _as_numbers(self.gammas)
        if not len(gammas) or not (np.isfinite(gammas) & (gammas > 0)).all():
            raise ValueError(
                f"gammas must be None or a list of finite numbers above 0; got {self.gammas!r}."
            )
        if self.kernel not in ("poly", "rbf"):
            raise ValueError(
                f"gammas are for kernel='poly' and 'rbf', not {self.kernel!r}; use gammas=None."
            )
        return gammas.tolist()

    def _scorer(self) -> Callable[..., float] | None:
        scorer = read_scorer("token_accuracy" if self.scoring is None else self.scoring, "gcv")
        exact = scorer is None or (isinstance(self.cv, str) and self.cv == "leave-one-out")
        if exact and self.n_landmarks is not None:
            raise ValueError(
                "scoring='gcv' and cv='leave-one-out' need all rows, not n_landmarks="
                f"{self.n_landmarks}; use folds (cv=5), or n_landmarks=None."
            )
        if scorer is None and self.cv is not None:
            raise ValueError(
                f"scoring='gcv' leaves out no sequences, so cv must be None; got cv={self.cv!r}."
            )
        return scorer

    def _folds(self, source: RowSource, groups: ArrayLike | None) -> list:
        X, weights = source.given
        rows = (X.lengths > 0) & (weights > 0)
        params = {} if groups is None else {"groups": groups}
        return read_folds(self.cv, np.zeros(len(X)), rows, rows, **params)

    def _leaves_out_each(self, source: RowSource) -> bool:
        if self.cv is None:
            few = n_entries(source.X, self.kernel) <= FEW_ENTRIES
            return few and self.n_landmarks is None
        return isinstance(self.cv, str) and self.cv == "leave-one-out"


def _best(scores: np.ndarray, gammas: list, l2s: np.ndarray, weights: list) -> tuple:
    # The position of the best finite score.
    finite = {at: bool(np.isfinite(scores[at])) for at in np.ndindex(scores.shape)}

    def name(at: tuple) -> str:
        g, i, j = at
        of_gamma = f"gamma={gammas[g]:.6g}, " if len(gammas) > 1 else ""
        return f"{of_gamma}l2={l2s[i]:.6g}, transition_weight={weights[j]}"

    check_finite(
        "ZScoreTaggerCV",
        {name(at): float(scores[at]) for at in finite},
        {name(at): finite[at] for at in finite},
    )
    return max(
        (at for at in finite if finite[at]),
        key=lambda at: (scores[at], l2s[at[1]], -at[2], -at[0]),
    )


def _as_numbers(values: Any) -> np.ndarray:
    try:
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.zeros(0)
    return numbers if numbers.ndim == 1 else np.zeros(0)
