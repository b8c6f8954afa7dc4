"""Hidden Markov SVM whose C is found by cross-validation."""

from collections.abc import Callable, Iterable

import numpy as np
from sklearn.model_selection import BaseCrossValidator

from sklseq.data.types import (
    ArrayLike,
    ChoiceLike,
    ClassWeightLike,
    ConstraintsLike,
    KernelLike,
    LossLike,
    RandomState,
)
from sklseq.estimators.hmsvm.hmsvm_tagger import HMSVMTagger
from sklseq.estimators.hmsvm.margin_path import GramMatrices, MarginPath
from sklseq.estimators.penalty_search import Axis, Data, PenaltySearchMixin, read_grid


class HMSVMTaggerCV(PenaltySearchMixin, HMSVMTagger):
    """:class:`HMSVMTagger` that finds ``C`` by cross-validation.

    Gives the scores of ``GridSearchCV(HMSVMTagger(), {"C": Cs})`` in a fraction of its time:
    sequences are read once, one Gram matrix serves all folds, and each model is trained from the
    one before, from small C to large. So training ends at other weights within ``tol``, and a few
    rows may be labelled differently. The folds are run by threads.

    Parameters
    ----------
    Cs : list of float or int, default=10
        Finite weights of the slacks to try; an integer n stands for n values between 0.001 and 100,
        evenly spaced on a logarithmic scale.
    cv : int, splitter or iterable, default=None
        As in scikit-learn's ``GridSearchCV``; None is ``KFold(5)``, or a fold for each sequence if
        there are fewer. Samples are sequences.
    scoring : str, callable or None, default=None
        The name of a scorer in ``sklseq.metrics``, a scorer, called as ``scorer(tagger, X, y)``
        with X the rows of features or of the Gram matrix, or None: token accuracy. With metadata
        routing, None passes ``sample_weight`` to the score, "token_accuracy" does not, as it does
        not request it.
    refit : bool, default=True
        Whether to train with the best C on all sequences. Else there is no model, and ``predict``
        raises ``NotFittedError``.
    racing : float or None, default=None
        Values of C that score lower than the one of best mean over the first two folds by more than
        this in each of these are left out of the others; their mean score is NaN. Other values then
        start from other models, which may change their scores slightly. None: all in all folds.
    loss : {"hamming", "zero_one"}, array-like, dict or callable, default="hamming"
        As in :class:`HMSVMTagger`.
    slack : {"l1", "l2"}, default="l1"
    kernel : {"linear", "poly", "rbf", "precomputed"} or callable, default="linear"
    gamma : {"scale", "auto"} or float, default="scale"
        With "scale", each fold has a value and a Gram matrix of its own.
    degree : int, default=3
    coef0 : float, default=0.0
    transition_scale : float, default=1.0
    boundaries : bool, default=True
    class_weight : dict, "balanced" or None, default=None
    transition_features : None, list, array, str, re.Pattern or callable, default=None
        As in :class:`HMSVMTagger`. Names are those of all sequences; a column has no
        weights in a fold whose training sequences lack it.
    constraints : {"iob2", "iobes", "bilou"}, list of tuple, mask (n_labels, n_labels) or None
    solver : {"auto", "bcfw", "working_set", "smoothing"}, default="auto"
    average : bool or "auto", default="auto"
        With True, each model is trained anew.
    max_iter : int or None, default=None
    tol : float, default=0.01
    cache_size : float, default=1000
        As in :class:`HMSVMTagger`; the Gram matrix holds all rows.
    n_jobs : int or None, default=None
        Threads: of folds in the search, then of prediction.
    verbose : int, default=0
        Above 0, the fold, C, progress and score of each model are printed.
    random_state : int, RandomState instance or None, default=None
        As in :class:`HMSVMTagger`.

    Attributes
    ----------
    C_ : float
        The best C: that of the largest mean score over folds; of equal ones, the smallest.
    best_score_ : float
        Its mean score.
    Cs_ : ndarray
        Values tried.
    scores_ : ndarray of shape (n_folds, n_Cs)
        Score of each model; NaN where ``racing`` left one out.
    cv_results_ : dict
        As in ``GridSearchCV``, without score times.
    n_splits_ : int
        Number of folds.
    classes_, coef_, dual_coef_, objective_, ...
        As in :class:`HMSVMTagger`, trained with ``C_`` on all sequences.

    Raises
    ------
    ValueError
        On bad parameters or data, before any work, and if no score is finite: see the message.

    Warns
    -----
    ConvergenceWarning
        If the solver did not converge for some C.
    UserWarning
        If scores are not finite for some C, which are then not chosen, or if the scorer has no
        argument ``sample_weight``: scores are not weighted then.

    See Also
    --------
    HMSVMTagger : The model with given C.
    sklseq.display.PenaltyPathDisplay : Scores along C.

    Notes
    -----
    A scorer of decision values on raw X is not possible with kernels: X has the kernels of a row
    with all rows then. Memory: one problem for each thread, and the Gram matrix.

    Examples
    --------
    >>> from sklseq import HMSVMTaggerCV
    >>> X = [[{"w": "the"}, {"w": "cat"}], [{"w": "a"}, {"w": "dog"}], [{"w": "the"}, {"w": "dog"}]]
    >>> tagger = HMSVMTaggerCV(Cs=[0.1, 1.0], cv=3, random_state=0).fit(X, [["D", "N"]] * 3)
    >>> tagger.C_, tagger.best_score_, tagger.scores_.shape
    (0.1, 1.0, (3, 2))
    """

    _plain = HMSVMTagger
    _in_parts = "partial_fit of HMSVMTagger(solver='perceptron')"

    def __init__(
        self,
        *,
        Cs: ArrayLike | int = 10,
        cv: int | BaseCrossValidator | Iterable[tuple[ArrayLike, ArrayLike]] | None = None,
        scoring: str | Callable[..., float] | None = None,
        refit: bool = True,
        racing: float | None = None,
        loss: LossLike = "hamming",
        slack: str = "l1",
        kernel: KernelLike = "linear",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        transition_scale: float = 1.0,
        boundaries: bool = True,
        class_weight: ClassWeightLike = None,
        transition_features: ChoiceLike | None = None,
        constraints: ConstraintsLike | None = None,
        solver: str = "auto",
        average: bool | str = "auto",
        max_iter: int | None = None,
        tol: float = 1e-2,
        cache_size: float = 1000,
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: RandomState = None,
    ):
        self.Cs = Cs
        self.cv = cv
        self.scoring = scoring
        self.refit = refit
        self.racing = racing
        self.loss = loss
        self.slack = slack
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.transition_scale = transition_scale
        self.boundaries = boundaries
        self.class_weight = class_weight
        self.transition_features = transition_features
        self.constraints = constraints
        self.solver = solver
        self.average = average
        self.max_iter = max_iter
        self.tol = tol
        self.cache_size = cache_size
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def _axes(self) -> list[Axis]:
        if self.solver == "perceptron":
            raise ValueError(
                "solver='perceptron' has no C to search; use 'auto', 'bcfw' or 'working_set', or "
                "HMSVMTagger(solver='perceptron')."
            )
        values = read_grid("Cs", self.Cs, (-3, 2), zero=False)
        return [Axis("C", values, np.argsort(values, kind="stable"))]

    def _paths(self, data: Data) -> Callable[[np.ndarray, np.ndarray], MarginPath]:
        grams = GramMatrices(self._tagger({}, None), data.rows.rows)
        return lambda train, test: MarginPath(self._tagger({}, None), data, train, test, grams)
