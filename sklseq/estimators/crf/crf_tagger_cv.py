"""CRF with penalties chosen by cross-validation."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from sklearn.model_selection import BaseCrossValidator

from sklseq.data.types import ArrayLike, ChoiceLike, ConstraintsLike, RandomState
from sklseq.estimators.crf.crf_path import CRFPath
from sklseq.estimators.crf.crf_tagger import CRFTagger
from sklseq.estimators.penalty_search import Axis, Data, PenaltySearchMixin, read_grid


class CRFTaggerCV(PenaltySearchMixin, CRFTagger):
    """:class:`CRFTagger` that finds ``l1`` and ``l2`` by cross-validation.

    Gives the scores of ``GridSearchCV(CRFTagger(), {"l1": l1s, "l2": l2s})`` in a fraction of its
    time: sequences are read once, and each model starts from the previous ones, from strong
    penalties to weak ones. The weights differ within ``tol``, so a few rows may get other labels.
    Folds are run in threads.

    Parameters
    ----------
    l1s : list of float or int, default=(0.0,)
        Weights of the L1 penalty to try; an integer n stands for n values between 0.001 and 10,
        evenly spaced on a logarithmic scale.
    l2s : list of float or int, default=10
        The same for the squared L2 penalty.
    cv : int, splitter or iterable, default=None
        As in scikit-learn's ``GridSearchCV``; None is ``KFold(5)``, or a fold for each sequence if
        there are fewer. Samples are sequences.
    scoring : str, callable or None, default=None
        The name of a scorer in ``sklseq.metrics``, a scorer, called as ``scorer(tagger, X, y)``
        where X holds rows of features, or None: token accuracy. With metadata routing, None passes
        ``sample_weight`` to the score, "token_accuracy" does not, as it does not request it.
    refit : bool, default=True
        Whether to train with the best penalties on all sequences. If False, there is no model, and
        ``predict`` raises ``NotFittedError``.
    racing : float or None, default=None
        A point is left out of later folds if, in each of the first two, its score is lower by more
        than this than that of the point with the best mean there; its mean score is NaN. The other
        points then start from other weights, which may change their scores slightly. None: all
        points in all folds.
    solver : {"auto", "dual", "adagrad", "lbfgs"}, default="auto"
        As in :class:`CRFTagger`, but "auto" does not choose "dual", which cannot start from
        previous weights, and chooses "adagrad" for 2,000 sparse rows or more.
        After "adagrad", the other models of a fold are trained by L-BFGS with its scales of
        weights.
    all_possible_states, all_possible_transitions : bool, default=False
    transition_features : None, list, array, str, re.Pattern or callable, default=None
        As in :class:`CRFTagger`. Names are those of all sequences; a column has no
        weights in a fold whose training sequences lack it.
    constraints : {"iob2", "iobes", "bilou"}, list of tuple, mask (n_labels, n_labels) or None
    boundaries : bool, default=True
    entropy_weight : float, default=0.0
    label_proportions : dict, or None, default=None
    proportions_weight : float, default=1.0
    decode : {"path", "marginal"}, default="path"
        As in :class:`CRFTagger`, in the scores of folds too.
    max_iter : int, default=500
    tol : float
        As in :class:`CRFTagger`, with the same default; in the folds, 0.7 of it.
    n_jobs : int or None, default=None
        Threads: of folds in the search, then of training and prediction.
    verbose : int, default=0
        Above 0, the fold, penalties, progress and score of each model are printed.
    random_state : int, RandomState instance or None, default=None
        As in :class:`CRFTagger`.

    Attributes
    ----------
    l1_, l2_ : float
        Penalties with the largest mean score over folds; among equal ones, the largest ``l1``, then
        the largest ``l2``.
    best_score_ : float
        Their mean score.
    l1s_, l2s_ : ndarray
        Penalties tried.
    scores_ : ndarray of shape (n_folds, n_l1s, n_l2s)
        Score of each model; NaN where ``racing`` left one out.
    cv_results_ : dict
        As in ``GridSearchCV``, without score times.
    n_splits_ : int
        Number of folds.
    classes_, coef_, transition_, objective_, n_iter_, ...
        As in :class:`CRFTagger`, trained with ``l1_`` and ``l2_`` on all sequences.

    Raises
    ------
    ValueError
        On bad parameters or data, before any work, and if no score is finite: see the message.

    Warns
    -----
    ConvergenceWarning
        If the solver did not converge for some penalties.
    UserWarning
        If scores are not finite at some penalties, which are then not chosen, or if scores are not
        weighted because the scorer has no argument ``sample_weight``.

    See Also
    --------
    CRFTagger : The model with given penalties.
    sklseq.display.PenaltyPathDisplay : Scores along the penalties.

    Notes
    -----
    Feature dicts get the columns of all sequences; in a fold, a feature that no training sequence
    has gets no weight. Memory: the rows of each fold that is being run, and for each thread the
    memory of training, four models, and twenty vectors of weights in float32.

    References
    ----------
    J. Friedman, T. Hastie, R. Tibshirani (2010), "Regularization paths for generalized linear
    models via coordinate descent", Journal of Statistical Software 33(1), §2.5 (paths with warm
    starts).

    Examples
    --------
    >>> from sklseq import CRFTaggerCV
    >>> X = [[{"w": "the"}, {"w": "cat"}], [{"w": "a"}, {"w": "dog"}], [{"w": "the"}, {"w": "dog"}]]
    >>> tagger = CRFTaggerCV(l2s=[0.1, 1.0], cv=3).fit(X, [["D", "N"]] * 3)
    >>> tagger.l2_, tagger.best_score_, tagger.scores_.shape
    (1.0, 1.0, (3, 1, 2))
    """

    _plain = CRFTagger
    _in_parts = "CRFTagger's partial_fit with the l1 and l2 found"

    def __init__(
        self,
        *,
        l1s: ArrayLike | int = (0.0,),
        l2s: ArrayLike | int = 10,
        cv: int | BaseCrossValidator | Iterable[tuple[ArrayLike, ArrayLike]] | None = None,
        scoring: str | Callable[..., float] | None = None,
        refit: bool = True,
        racing: float | None = None,
        solver: str = "auto",
        all_possible_states: bool = False,
        all_possible_transitions: bool = False,
        transition_features: ChoiceLike | None = None,
        constraints: ConstraintsLike | None = None,
        boundaries: bool = True,
        entropy_weight: float = 0.0,
        label_proportions: Mapping[Any, Any] | None = None,
        proportions_weight: float = 1.0,
        decode: str = "path",
        max_iter: int = 500,
        tol: float = CRFTagger.__init__.__kwdefaults__["tol"],
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: RandomState = None,
    ):
        self.l1s = l1s
        self.l2s = l2s
        self.cv = cv
        self.scoring = scoring
        self.refit = refit
        self.racing = racing
        self.solver = solver
        self.all_possible_states = all_possible_states
        self.all_possible_transitions = all_possible_transitions
        self.transition_features = transition_features
        self.constraints = constraints
        self.boundaries = boundaries
        self.entropy_weight = entropy_weight
        self.label_proportions = label_proportions
        self.proportions_weight = proportions_weight
        self.decode = decode
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def _axes(self) -> list[Axis]:
        axes = []
        for name in ("l1", "l2"):
            values = read_grid(f"{name}s", getattr(self, f"{name}s"), (-3, 1), zero=True)
            axes.append(Axis(name, values, np.argsort(-values, kind="stable")))
        return axes

    def _paths(self, data: Data) -> Callable[[np.ndarray, np.ndarray], CRFPath]:
        return lambda train, test: CRFPath(self._tagger({}, None), data, train, test)
