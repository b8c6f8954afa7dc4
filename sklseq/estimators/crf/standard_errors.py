"""Standard errors of the weights of a CRF, from the Hessian of its objective."""

import warnings
from typing import Any

import numpy as np
from scipy import linalg, sparse
from sklearn import get_config
from sklearn.exceptions import ConvergenceWarning

from sklseq._lib.threads import Threads
from sklseq.data.sequences import Sequences
from sklseq.data.types import ArrayLike, LabelsLike, SequencesLike
from sklseq.estimators.crf.crf_problem import score_map
from sklseq.estimators.sources.open_source import open_source
from sklseq.estimators.sources.partial_source import PartialSource, Unlabelled
from sklseq.estimators.sources.source import RowSource
from sklseq.estimators.trained_weights import trained_support
from sklseq.estimators.weights import dense_weights
from sklseq.objectives.likelihood.likelihood import hessian_rows
from sklseq.objectives.scores.score_map import ScoreMap, Support, Weights

# Distance of a weight from the minimum, in standard errors, above which there is a warning.
FAR = 0.1
# Change of the largest score in differences of gradients: errors are about STEP², and rounding
# divided by STEP.
STEP = 1e-4


class StandardErrors(Weights):
    """Standard errors of the weights of a ``CRFTagger``; NaN where there is no trained weight.

    ``transition_coef``, which is not a field, has those of transition features: a CSR matrix like
    ``transition_coef_`` with an entry for each trained weight, or None.

    Attributes
    ----------
    coef : ndarray of shape (n_features, n_labels)
    transition : ndarray of shape (n_labels, n_labels)
    start, end : ndarray of shape (n_labels,)
    """

    transition_coef: sparse.csr_matrix | None = None


def weight_errors(
    tagger: Any, X: SequencesLike, y: LabelsLike, sample_weight: ArrayLike | None, robust: bool
) -> StandardErrors:
    """Standard errors of a tagger, see :func:`sklseq.inspection.standard_errors`."""
    source = _open(tagger, X, y, sample_weight)
    if isinstance(source, PartialSource) and not robust:
        raise ValueError(
            "y has unknown labels or sets of labels; their log-likelihood is not concave, so its "
            "Hessian gives no variance; pass robust=True."
        )
    summary, rows = source.summarise(), source.X.rows
    if source.X.is_sparse:  # gives a layout of w that also fits single sequences
        summary = summary._replace(counts=np.bincount(rows.indices, minlength=rows.shape[1]))
    scores = score_map(tagger, source, summary, support=_support(tagger, source, summary))
    w = scores.pack(_weights_of(tagger, source), tagger.transition_coef_)
    ones = scores.pack(Weights(*(np.ones(x.shape) for x in scores.unpack(w))))
    scores.triples(ones)[:] = 1
    trained = np.flatnonzero(w if tagger.l1 else ones)
    budget = _budget(len(trained))
    with Threads(tagger.n_jobs) as threads:
        f = source.likelihood(scores, float(tagger.l2), threads)
        inverse = _inverse(_hessian(f, w, trained, budget))
        _warn_of_distance(f, w, float(tagger.l1), trained, inverse)
        gradients = _gradients(source, scores, w, trained) if robust else None
    variance = _variance(inverse, f.l2, gradients)
    errors = np.zeros_like(w)
    errors[trained] = np.sqrt(np.maximum(variance, np.finfo(float).tiny))
    found = StandardErrors(*(np.where(x > 0, x, np.nan) for x in scores.unpack(errors)))
    found.transition_coef = scores.unpack_triples(errors)
    return found


def _open(tagger: Any, X: Any, y: Any, sample_weight: Any) -> RowSource:
    if parameter := Unlabelled.of(tagger).parameter:
        raise ValueError(
            "Standard errors need weights that maximise the likelihood, but the model was trained "
            f"with {parameter}; fit a model without it."
        )
    rows = X if tagger.vectorizer_ is None else tagger.vectorizer_.transform(X)
    source = open_source(rows, y, sample_weight, "forward-backward")
    if not isinstance(source, RowSource):
        raise ValueError(
            "Standard errors need sequences in memory; X holds blocks of rows or shards."
        )
    source.X = Sequences(source.X.rows.astype(np.float64), source.X.offsets)
    source.roles = getattr(tagger, "_roles", None)
    return source


def _support(tagger: Any, source: RowSource, summary: Any) -> Support:
    # The weights of fit; columns with transition features are those of the fitted model.
    support = trained_support(tagger, summary.support, len(summary.classes), tagger.boundaries)
    return source.with_triples(support, None, tagger.all_possible_transitions, summary.n_features)


def _weights_of(tagger: Any, source: RowSource) -> Weights:
    order, coef = np.argsort(tagger.classes_), dense_weights(tagger.coef_)
    if not np.array_equal(tagger.classes_[order], source.classes) or (
        len(coef) != source.X.shape[1]
    ):
        raise ValueError(
            f"X and y must be those of fit: the model has {len(coef)} features and "
            f"{len(order)} labels, the data {source.X.shape[1]} features and "
            f"{len(source.classes)} labels, or other ones."
        )
    parts = coef[:, order], tagger.transition_[np.ix_(order, order)], tagger.start_[order]
    return Weights(*(x.astype(np.float64) for x in (*parts, tagger.end_[order])))


def _budget(n: int) -> float:
    # Bytes that matrices may take, of which those of n weights must be a part.
    budget = get_config()["working_memory"] * 2.0**20
    if 16.0 * n**2 > budget:
        raise ValueError(
            f"Standard errors of {n} weights need {16e-6 * n**2:.3g} MB, and working_memory allows "
            f"{budget / 1e6:.3g} MB; train fewer weights (fewer features or l1), or raise it: "
            "sklearn.set_config(working_memory=<MiB>)."
        )
    return budget


def _variance(inverse: np.ndarray, l2: float, gradients: np.ndarray | None) -> np.ndarray:
    # Diagonal of H⁻¹ (Σ_s g_s g_sᵀ) H⁻¹, or of H⁻¹ (H - ridge) H⁻¹ without the ``gradients`` g_s.
    if gradients is not None:
        G = inverse @ gradients
        return np.einsum("ks,ks->k", G, G)
    return np.diag(inverse) - 2 * l2 * np.einsum("kl,kl->k", inverse, inverse)


def _hessian(f: Any, w: np.ndarray, trained: np.ndarray, budget: float) -> np.ndarray:
    # One product for each weight; with transition features, which have no tangents, differences.
    if f.scores.features is not None:
        return _differences(f, w, trained)
    hessian, n = f.hessian(w, budget - 16.0 * len(trained) ** 2), len(trained)
    return hessian_rows(hessian, trained, np.ones(n), len(w))


def _differences(f: Any, w: np.ndarray, trained: np.ndarray) -> np.ndarray:
    # (g(w + h e_k) - g(w - h e_k)) / 2 h, for steps h that change scores by at most STEP.
    scale, H = f.scores.scale(f.l2, f.scores.largest), np.empty((len(trained), len(trained)))
    steps = np.full(len(w), STEP) if scale is None else STEP / scale
    ahead, back = np.empty_like(w), np.empty_like(w)
    for k, at in enumerate(trained):
        kept = w[at]
        for point, gradient in ((kept + steps[at], ahead), (kept - steps[at], back)):
            w[at] = point
            f.value_and_gradient(w, gradient)
        w[at], H[k] = kept, (ahead - back)[trained] / (2 * steps[at])
    return (H + H.T) / 2


def _inverse(H: np.ndarray) -> np.ndarray:
    scale = 1 / np.sqrt(np.maximum(np.diag(H), np.finfo(float).tiny))
    try:
        factor = linalg.cho_factor(H * scale[:, None] * scale)
        diagonal = np.diag(factor[0])
        if diagonal.min() < 1e-7:
            raise linalg.LinAlgError
    except linalg.LinAlgError:
        raise ValueError(
            "The Hessian is not positive definite: some weights can change without changing the "
            "likelihood, or training did not reach a minimum, or features have very different "
            "scales; scale them, use a larger l2, and fit with a smaller tol."
        ) from None
    return linalg.cho_solve(factor, np.diag(scale)) * scale[:, None]


def _warn_of_distance(f: Any, w, l1: float, trained: np.ndarray, inverse: np.ndarray) -> None:
    gradient = np.empty_like(w)
    f.value_and_gradient(w, gradient)
    gradient += l1 * np.sign(w)
    far = np.abs(inverse @ gradient[trained]) / np.sqrt(np.diag(inverse))
    if far.max(initial=0) > FAR:
        warnings.warn(
            f"A weight is about {far.max():.2g} standard errors from the minimum, and standard "
            "errors are those of weights at the minimum; fit with a smaller tol.",
            ConvergenceWarning,
            stacklevel=4,
        )


def _gradients(source: RowSource, scores: ScoreMap, w, trained: np.ndarray) -> np.ndarray:
    # Gradients of the weighted -log p of each sequence, shape (n_weights, n_sequences).
    G, gradient = np.empty((len(trained), len(source.X))), np.empty_like(w)
    with Threads(1) as one:
        for s in range(len(source.X)):
            part = source.part(s)
            part.likelihood(scores.for_rows(part.X), 0.0, one).value_and_gradient(w, gradient)
            G[:, s] = gradient[trained]
    return G
