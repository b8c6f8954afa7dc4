"""Inspection of the last step of a fitted pipeline or search: fields, n best labelings, weights.

A Pipeline has only the methods ``predict``, ``predict_proba``, ``decision_function`` and ``score``
of its last step. All functions here take a tagger or segmenter, a Pipeline that ends in one, a
fitted search such as ``GridSearchCV`` over one of these, or a ``FrozenEstimator``, and the X of
``model.predict``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import entr
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline

from sklseq._lib.checks import check_choice, check_number
from sklseq._lib.estimator import fitted_parameter
from sklseq._lib.ragged import offsets_of
from sklseq._lib.signatures import taken_options
from sklseq.data.characters import SequenceTokens
from sklseq.data.input_kinds import check_one_sequence
from sklseq.data.labels import as_label_sequences, find_codes
from sklseq.data.partial_labels import PartialLabels
from sklseq.data.segment_labels import Span
from sklseq.data.span_rules import find_by_rules, named_spans, span_rules
from sklseq.data.types import (
    ArrayLike,
    LabelsLike,
    MatrixLike,
    SequencesLike,
    TokensLike,
    ValidLike,
)
from sklseq.estimators.crf.crf_tagger import CRFTagger
from sklseq.estimators.crf.crf_tagger_cv import CRFTaggerCV
from sklseq.estimators.crf.standard_errors import StandardErrors, weight_errors
from sklseq.estimators.unwrap import last_step, unwrap
from sklseq.estimators.weights import check_weights

if TYPE_CHECKING:
    import pandas

__all__ = [
    "Field",
    "Span",
    "StandardErrors",
    "explain",
    "extract",
    "feature_names",
    "last_step",
    "log_proba_sequence",
    "marginals",
    "nbest",
    "segment_proba",
    "spans",
    "standard_errors",
    "to_frame",
    "top_features",
    "uncertain_rows",
    "uncertainty",
]

MEASURES = ("token", "entropy", "margin", "nbest-entropy")


class Field(NamedTuple):
    """One field of a sequence, with its text.

    Attributes
    ----------
    label : label
        Type of the field.
    text : str
    start, stop : int
        Its first token and the token after its last one; characters of the raw string, if that is
        given.
    probability : float or None
        As in :class:`Span`.
    """

    label: Any
    text: str
    start: int
    stop: int
    probability: float | None


# ---------------------------------------------------------------- answers of the last step


def _ask(model: Any, method: str, X: Any, *args: Any, **options: Any) -> Any:
    last, X = last_step(model, X)
    _check_method(last, method)
    bound = getattr(last, method)
    return bound(X, *args, **taken_options(bound, **options))


def _check_method(
    last: Any, method: str, instead: str = "CRFTagger, or SemiCRFSegmenter with loss='log',"
) -> None:
    if not hasattr(last, method):
        raise ValueError(f"{type(last).__name__} has no {method}; use {instead} as the last step.")


def nbest(model: BaseEstimator, X: SequencesLike, n: int = 10) -> list:
    """The ``n`` best labelings of each sequence.

    Parameters
    ----------
    model : Pipeline, search or estimator
        Fitted.
    X : list of sequences
    n : int, default=10

    Returns
    -------
    list of (labels, log_proba)
        Result of ``predict_nbest`` of the last step: scores instead of log-probabilities if the
        model has none, and segmentations instead of labels if it is a segmenter.

    Raises
    ------
    ValueError
        If the last step has no n best labelings.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklseq import CRFTagger
    >>> from sklseq.features import TokenFeatures
    >>> from sklseq.inspection import nbest
    >>> X, y = [["Ann", "sings"]], [["NAME", "O"]]
    >>> model = make_pipeline(TokenFeatures(), CRFTagger()).fit(X, y)
    >>> labels, log_proba = nbest(model, X, 2)[0]
    >>> labels[0], log_proba.shape
    (['NAME', 'O'], (2,))
    """
    return _ask(model, "predict_nbest", X, n)


def spans(
    model: BaseEstimator,
    X: SequencesLike,
    *,
    scheme: str | None = None,
    valid: ValidLike | None = None,
    handle_invalid: str = "error",
) -> list[list[Span]]:
    """The predicted spans of each sequence, with the probability of each.

    Parameters
    ----------
    model : Pipeline, search or estimator
        Fitted.
    X : list of sequences
    scheme : {"iob1", "iob2", "ioe1", "ioe2", "iobes", "bilou", "runs"} or None, default=None
        How labels are read, see :meth:`sklseq.CRFTagger.predict_spans`. Not for segmenters.
    valid : "once", collection of types, callable or None, default=None
        Which labelings are valid, see :meth:`sklseq.CRFTagger.predict`.
    handle_invalid : {"error", "best"}, default="error"
        For a sequence without a valid labeling: raise an error, or return the best labeling of all.

    Returns
    -------
    list of list of Span
        (start, stop, label, probability), in order. The probability is None if the model has none,
        and for an ``OnlineDecoder``, which emits labels before the sequence ends.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklseq import CRFTagger
    >>> from sklseq.features import TokenFeatures
    >>> from sklseq.inspection import spans
    >>> X, y = [["Ann", "Lee", "sings"]], [["B-NAME", "I-NAME", "O"]]
    >>> model = make_pipeline(TokenFeatures(), CRFTagger()).fit(X, y)
    >>> [span[:3] for span in spans(model, X)[0]]
    [(0, 2, 'NAME')]
    """
    last: Any
    last, rows = last_step(model, X)
    way = None if handle_invalid == "error" else handle_invalid
    rule = {"valid": valid, "handle_invalid": way}
    if not hasattr(last, "predict_spans"):
        return _spans_of_labels(last.predict(rows, **taken_options(last.predict, **rule)), scheme)
    return last.predict_spans(rows, **taken_options(last.predict_spans, scheme=scheme, **rule))


def _spans_of_labels(labels: Iterable, scheme: str | None) -> list[list[Span]]:
    flat, offsets = as_label_sequences(labels, "the prediction")
    classes, codes = np.unique(flat, return_inverse=True)
    rules = span_rules(classes, scheme)
    return named_spans(rules, find_by_rules(codes, offsets, rules), offsets)


def marginals(model: BaseEstimator, X: SequencesLike) -> list[list[dict[Any, float]]]:
    """Probabilities of the labels of each token, as dicts.

    Parameters
    ----------
    model : Pipeline, search or estimator
        Fitted.
    X : list of sequences

    Returns
    -------
    list of list of dict
        ``predict_proba``, as sklearn-crfsuite's ``predict_marginals`` returns it: a dict
        {label: probability} for each token.

    Raises
    ------
    ValueError
        If the last step has no probabilities.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklseq import CRFTagger
    >>> from sklseq.features import TokenFeatures
    >>> from sklseq.inspection import marginals
    >>> X, y = [["Ann", "sings"]], [["NAME", "O"]]
    >>> model = make_pipeline(TokenFeatures(), CRFTagger()).fit(X, y)
    >>> sorted(marginals(model, X)[0][1])
    ['NAME', 'O']
    """
    labels = getattr(last_step(model)[0], "classes_", np.zeros(0)).tolist()
    rows = _ask(model, "predict_proba", X)
    return [[dict(zip(labels, row)) for row in proba.tolist()] for proba in rows]


def segment_proba(
    model: BaseEstimator,
    X: SequencesLike,
    segments: LabelsLike | None = None,
    *,
    scheme: str | None = None,
) -> list[np.ndarray]:
    """Probability of each given segment: that it is a span with this label and these ends.

    Parameters
    ----------
    model : Pipeline, search or estimator
        Fitted.
    X : list of sequences
    segments : list of lists of (start, stop, label), optional
        By default those that the model predicts.
    scheme : str or None, default=None
        As in :func:`spans`.

    Returns
    -------
    list of ndarray of shape (n_segments,)

    Raises
    ------
    ValueError
        If a segment is not one of its sequence, or the last step has no probabilities.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklseq import CRFTagger
    >>> from sklseq.features import TokenFeatures
    >>> from sklseq.inspection import segment_proba
    >>> X, y = [["Ann", "Lee", "sings"]], [["B-NAME", "I-NAME", "O"]]
    >>> model = make_pipeline(TokenFeatures(), CRFTagger()).fit(X, y)
    >>> whole, part = segment_proba(model, X, [[(0, 2, "NAME"), (0, 1, "NAME")]])[0]
    >>> bool(whole > part)
    True
    """
    return _ask(model, "predict_segment_proba", X, segments, scheme=scheme)


def log_proba_sequence(model: BaseEstimator, X: SequencesLike, y: LabelsLike) -> np.ndarray:
    """log p(y_s | x_s) of whole label sequences, or of segmentations.

    Parameters
    ----------
    model : Pipeline, search or estimator
        Fitted.
    X : list of sequences
    y : list of label sequences, or of lists of (start, stop, label)

    Returns
    -------
    ndarray of shape (n_sequences,)

    Raises
    ------
    ValueError
        If the last step has no probabilities.
    """
    return _ask(model, "predict_log_proba_sequence", X, y)


def uncertainty(
    model: BaseEstimator, X: SequencesLike, by: str = "token", *, n: int = 10
) -> np.ndarray:
    """Uncertainty of the labels of each sequence, for active learning or checks.

    Parameters
    ----------
    model : Pipeline, search or estimator
        Fitted.
    X : list of sequences
    by : {"token", "entropy", "margin", "nbest-entropy"}, default="token"
        Measure, where p_1 ≥ p_2 ≥ … are the probabilities of the best labelings:

        - "token": the mean over rows of the entropy of their label.
        - "entropy": -Σ_y p(y | x) log p(y | x) over all labelings. It grows with the length.
        - "margin": 1 - (p_1 - p_2).
        - "nbest-entropy": the entropy of the ``n`` best labelings, scaled to sum 1.
    n : int, default=10
        Number of labelings for "nbest-entropy".

    Returns
    -------
    ndarray of shape (n_sequences,)
        At least 0; entropies are in nats. 0 for an empty sequence.

    Raises
    ------
    ValueError
        If the last step has no probabilities, or ``by`` is not one of the above.

    Notes
    -----
    "entropy" and "token" cost two passes of forward-backward, the others a search for the n best
    labelings.

    References
    ----------
    B. Settles, M. Craven (2008), "An analysis of active learning strategies for sequence labeling
    tasks", EMNLP, §3.1.

    Examples
    --------
    >>> import numpy as np
    >>> from sklseq import CRFTagger
    >>> from sklseq.inspection import uncertainty
    >>> X, y = [[{"w": "Ann"}, {"w": "sings"}]], [["NAME", "O"]]
    >>> tagger = CRFTagger(l2=0.01).fit(X, y)
    >>> seen, new = uncertainty(tagger, [*X, [{"w": "Lee"}, {"w": "rests"}]])
    >>> bool(seen < new)
    True
    """
    check_choice("by", by, MEASURES)
    check_number("n", n, 1, whole=True)
    last: Any
    last, rows = last_step(model, X)
    _check_method(last, "predict_log_proba_sequence")
    if by == "token":
        proba = [p.astype(np.float64) for p in last.predict_proba(rows)]
        return np.array([float(entr(p).sum() / max(len(p), 1)) for p in proba])
    if by == "entropy":
        _check_method(last, "path_entropy", "CRFTagger")
        return last.path_entropy(rows)
    found = last.predict_nbest(rows, 2 if by == "margin" else n)
    return np.array([_of_best(np.asarray(log_p), by) for _, log_p in found])


def _of_best(log_p: np.ndarray, by: str) -> float:
    if by == "nbest-entropy":
        ratios = np.exp(log_p - log_p[0])  # probabilities of long sequences are 0 in float64
        return float(entr(ratios / ratios.sum()).sum())
    proba = np.exp(log_p)
    return max(0.0, 1.0 - float(proba[0] - proba[1:2].sum()))


def uncertain_rows(
    model: BaseEstimator, X: SequencesLike, n: int, known: LabelsLike | None = None
) -> list[tuple[int, int]]:
    """Rows with the least certain labels, for active learning of single labels.

    The uncertainty of row t of a sequence x is 1 - max_j p(y_t = j | x, known labels).

    Parameters
    ----------
    model : Pipeline, search or estimator
        Fitted.
    X : list of sequences
    n : int
        Number of rows.
    known : list of label sequences, optional
        Labels known so far, as in training: at each row a label, None (unknown) or a set of
        possible labels. Probabilities are conditional on them, and rows with only one possible
        label are left out.

    Returns
    -------
    list of (sequence, row)
        The least certain row first, ties in the order of X; all unknown rows if there are fewer
        than ``n``.

    Raises
    ------
    ValueError
        If n is not an integer of at least 1, or the last step has no ``predict_proba``, or its
        ``predict_proba`` does not take known labels.

    Notes
    -----
    Costs two passes of forward-backward. A model can be trained on labels of single rows: y
    is None at the others.

    References
    ----------
    K. Tomanek, U. Hahn (2009), "Semi-supervised active learning for sequence labeling", ACL.

    Examples
    --------
    >>> from sklseq import CRFTagger
    >>> from sklseq.inspection import uncertain_rows
    >>> X, y = [[{"w": "Ann"}, {"w": "sings"}]], [["NAME", "O"]]
    >>> tagger = CRFTagger(l2=0.01).fit(X, y)
    >>> uncertain_rows(tagger, [*X, [{"w": "Lee"}, {"w": "sings"}]], 1)
    [(1, 0)]
    """
    check_number("n", n, 1, whole=True)
    proba = _ask(model, "predict_proba", X, known=known)
    offsets = offsets_of(list(map(len, proba)))
    best = np.concatenate([np.zeros(0), *(rows.max(axis=1) for rows in proba)])
    rows = np.arange(len(best))
    if known is not None:
        rows = np.flatnonzero(PartialLabels.read(known, name="known").counts != 1)
    rows = rows[np.argsort(best[rows], kind="stable")[:n]]
    sequences = np.searchsorted(offsets, rows, side="right") - 1
    return list(zip(sequences.tolist(), (rows - offsets[sequences]).tolist()))


# ------------------------------------------------------------------------- fields and tables


def extract(
    model: BaseEstimator,
    X: SequencesLike,
    *,
    tokens: Sequence[Sequence[str]] | None = None,
    texts: Sequence[str] | None = None,
    offsets: Sequence[Sequence[tuple[int, int]]] | None = None,
    scheme: str | None = None,
    valid: ValidLike | None = None,
    handle_invalid: str = "error",
) -> list[list[Field]]:
    """The fields of each sequence, with their texts.

    Parameters
    ----------
    model : Pipeline, search or estimator
        Fitted.
    X : list of sequences
    tokens : list of lists of str, optional
        By default the tokens of X: its strings, or its first column.
    texts : list of str, optional
        The raw strings of the sequences. The text of a field is then cut from them, from the
        beginning of its first token to the end of its last one.
    offsets : list of lists of (start, stop), optional
        Characters of each token in ``texts``. By default each token is searched after the previous
        one.
    scheme, valid, handle_invalid
        As in :func:`spans`.

    Returns
    -------
    list of list of Field
        (label, text, start, stop, probability). Without ``texts``, the text is the tokens joined by
        spaces, and start and stop count tokens.

    Raises
    ------
    ValueError
        If the numbers of sequences of X, texts and token lists differ, or the numbers of tokens or
        offsets of a sequence; if a token is not in its text, or offsets are not in order or are
        beyond its end.
    TypeError
        If tokens or texts are not strings.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklseq import CRFTagger
    >>> from sklseq.features import TokenFeatures
    >>> from sklseq.inspection import extract
    >>> X, y = [["Ann", "Lee", "sings"]], [["B-NAME", "I-NAME", "O"]]
    >>> model = make_pipeline(TokenFeatures(), CRFTagger()).fit(X, y)
    >>> label, text, start, stop, probability = extract(model, X, texts=["Ann  Lee sings."])[0][0]
    >>> label, text, start, stop
    ('NAME', 'Ann  Lee', 0, 8)
    """
    table = SequenceTokens.of(X, tokens, texts, offsets)
    found = spans(model, X, scheme=scheme, valid=valid, handle_invalid=handle_invalid)
    return [
        [
            Field(label, *table.text(s, start, stop), probability)
            for start, stop, label, probability in one
        ]
        for s, one in enumerate(found)
    ]


def to_frame(
    model: BaseEstimator,
    X: SequencesLike,
    *,
    tokens: Sequence[Sequence[str]] | None = None,
    texts: Sequence[str] | None = None,
    offsets: Sequence[Sequence[tuple[int, int]]] | None = None,
) -> pandas.DataFrame:
    """Return a table with a row for each token: its text, label and probability.

    Parameters
    ----------
    model : Pipeline, search or estimator
        Fitted.
    X : list of sequences
    tokens, texts, offsets
        As in :func:`extract`.

    Returns
    -------
    pandas.DataFrame
        Columns "sequence", "position", "token" (if known), "start" and "stop" (characters, with
        ``texts``), "label" and "probability" (of the label at this token, if the model has
        ``predict_proba``).

    Raises
    ------
    ImportError
        If pandas is not installed.
    ValueError
        As in :func:`extract`.

    Examples
    --------
    >>> from sklseq.inspection import to_frame
    >>> to_frame(model, X)  # doctest: +SKIP
       sequence  position  token   label  probability
    0         0         0    Ann  B-NAME     0.937842
    1         0         1    Lee  I-NAME     0.954381
    2         0         2  sings       O     0.968013
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError("to_frame makes a pandas.DataFrame; install pandas.") from error
    table = SequenceTokens.of(X, tokens, texts, offsets, required=False)
    last: Any
    last, rows = last_step(model, X)
    labels = getattr(last, "predict_labels", last.predict)(rows)
    lengths = np.array([len(one) for one in labels], dtype=np.int64)
    nothing = np.zeros(0, dtype=object)  # pandas would convert [] to a column of floats
    columns: dict[str, Any] = {
        "sequence": np.repeat(np.arange(len(lengths)), lengths),
        "position": np.concatenate([np.arange(0), *map(np.arange, lengths)]),
    }
    words = _words(table)
    if words is not None:
        columns["token"] = words or nothing
    if table.offsets is not None:
        ends = np.array([pair for pairs in table.offsets for pair in pairs]).reshape(-1, 2)
        columns["start"], columns["stop"] = ends.T
    flat, _ = as_label_sequences(labels)
    columns["label"] = flat.tolist() or nothing
    if hasattr(last, "predict_proba"):
        columns["probability"] = _label_probabilities(last, rows, flat)
    return pandas.DataFrame(columns)


def _words(table: SequenceTokens) -> list[str] | None:
    # All tokens, one sequence after the other; None if neither they nor their places are known.
    if table.tokens is not None:
        return [word for words in table.tokens for word in words]
    if table.texts is None or table.offsets is None:
        return None
    return [text[a:b] for text, pairs in zip(table.texts, table.offsets) for a, b in pairs]


def _label_probabilities(last: Any, rows: Any, labels: np.ndarray) -> np.ndarray:
    # The probability of the label of each row.
    if hasattr(last, "predict_labels"):  # of a segmenter: probabilities belong to types
        outside = fitted_parameter(last, "outside")
        labels = np.array([label if label == outside else label[2:] for label in labels.tolist()])
    codes = find_codes(labels, last.classes_)
    proba = np.concatenate([np.zeros((0, len(last.classes_))), *last.predict_proba(rows)])
    return proba[np.arange(len(codes)), codes]


# ------------------------------------------------------------------------------------ weights


def feature_names(
    model: BaseEstimator, input_features: Iterable[str] | None = None
) -> np.ndarray | None:
    """Names of the input features of the last step of a fitted pipeline.

    Parameters
    ----------
    model : Pipeline, search or estimator
        Fitted.
    input_features : array-like of str, default=None
        Names of the columns of ``X`` if it holds numbers.

    Returns
    -------
    ndarray of str objects, or None
        None if there are no names, as for a single estimator fitted on rows of numbers.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklseq import CRFTagger
    >>> from sklseq.features import TemplateFeatures
    >>> from sklseq.inspection import feature_names
    >>> model = make_pipeline(TemplateFeatures(["w[0]"], bos_eos=False), CRFTagger())
    >>> feature_names(model.fit([["a", "b"]], [["x", "y"]])).tolist()
    ['w[0]=a', 'w[0]=b']
    """
    inner: Any = unwrap(model)
    names: Any = input_features
    if not isinstance(inner, Pipeline):
        return getattr(inner, "feature_names_in_", names)
    if len(inner.steps) > 1:
        names = inner[:-1].get_feature_names_out(names)
    return feature_names(inner[-1], names)


def top_features(
    model: BaseEstimator,
    n: int = 10,
    *,
    label: Hashable | None = None,
    sign: str | None = None,
    input_features: Iterable[str] | None = None,
) -> list[tuple]:
    """The state weights of largest magnitude of a tagger at the end of a pipeline.

    Parameters
    ----------
    model : Pipeline, search or tagger
        Fitted.
    n : int, default=10
    label : label, optional
        Only weights of this label.
    sign : {"positive", "negative"} or None, default=None
        Only weights of this sign.
    input_features : array-like of str, default=None
        Names of the columns of ``X`` if it holds numbers.

    Returns
    -------
    list of (weight, label, feature name)

    Raises
    ------
    ValueError
        If the last step has no such weights, or the label is unknown.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklseq import CRFTagger
    >>> from sklseq.features import TemplateFeatures
    >>> from sklseq.inspection import top_features
    >>> model = make_pipeline(TemplateFeatures(["w[0]"], bos_eos=False), CRFTagger(l2=0.1))
    >>> sorted({name for _, _, name in top_features(model.fit([["a", "b"]], [["x", "y"]]), 4)})
    ['w[0]=a', 'w[0]=b']
    """
    names, tagger = feature_names(model, input_features), last_step(model)[0]
    if not hasattr(tagger, "top_features"):
        raise ValueError(
            f"{type(tagger).__name__} has no weights of named features; top_features needs "
            "CRFTagger, ZScoreTagger or a pipeline that ends with one."
        )
    return tagger.top_features(n, label=label, sign=sign, feature_names=names)


def standard_errors(
    model: BaseEstimator,
    X: SequencesLike,
    y: LabelsLike,
    *,
    sample_weight: ArrayLike | None = None,
    robust: bool = False,
) -> StandardErrors:
    """Standard errors of the weights of a fitted ``CRFTagger``.

    The standard errors of the penalised estimate are the roots of the diagonal of

        H⁻¹ (H - 2 · l2) H⁻¹,  or  H⁻¹ (Σ_s g_s g_sᵀ) H⁻¹  if ``robust``,

    where H is the Hessian of the objective at the weights, and g_s the gradient of
    -weight_s · log p(y_s | x_s).

    Parameters
    ----------
    model : Pipeline, search or CRFTagger
        Fitted, with a small ``tol``: the weights have to be near the minimum.
    X : list of sequences
        X of ``fit``; only the number of features can be checked.
    y : list of label sequences
        y of ``fit``; labels may be unknown.
    sample_weight : array-like of shape (n_sequences,), optional
        Weights of ``fit``.
    robust : bool, default=False
        False: assume that labels are drawn from the model. True: assume only that sequences are
        independent (sandwich estimate); required if labels are unknown.

    Returns
    -------
    StandardErrors
        Named tuple ``(coef, transition, start, end)``, in the shapes of the weights; NaN for
        weights that are not trained, or that ``l1`` keeps at zero. Those of transition features
        are in its attribute ``transition_coef``, a CSR matrix like ``transition_coef_``.

    Raises
    ------
    ValueError
        If the last step is not a ``CRFTagger``; X or y have features or labels that ``fit`` did not
        have; labels are unknown, and ``robust`` is False; ``robust`` is not a bool; H is
        not positive definite, as without penalty; or it does not fit into ``working_memory``.

    Warns
    -----
    ConvergenceWarning
        If a Newton step would change a weight by more than a tenth of its standard error.

    Notes
    -----
    Cost: one product of H and a vector for each of n weights, each about the time of two gradients,
    then O(n³); 16 n² bytes. If all weights of a feature grow by the same number, p(y | x) does not
    change, so without the penalty they have no standard errors. The products are exact: the tangent
    of forward-backward gives covariances of features. With transition features, they are
    differences of two gradients, with a relative error of about 1e-8.

    References
    ----------
    R. J. Gray (1992), "Flexible methods for analyzing survival data using splines, with
    applications to breast cancer prognosis", JASA 87(420), §3.

    H. White (1982), "Maximum likelihood estimation of misspecified models", Econometrica 50(1).

    Examples
    --------
    >>> import numpy as np
    >>> from sklseq import CRFTagger
    >>> from sklseq.inspection import standard_errors
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(5, 2)) for _ in range(50)]
    >>> y = [(x[:, 0] + rng.logistic(size=5) > 0).astype(int) for x in X]
    >>> tagger = CRFTagger(l2=0.01, tol=1e-8).fit(X, y)
    >>> errors = standard_errors(tagger, X, y)
    >>> np.abs(tagger.coef_ / errors.coef).round(1)  # distance from 0
    array([[6.4, 6.4],
           [0.6, 0.6]])
    """
    tagger: Any
    tagger, rows = last_step(model, X)
    if not isinstance(tagger, CRFTagger) or isinstance(tagger, CRFTaggerCV):
        raise ValueError(
            f"{type(tagger).__name__} has no standard errors; use CRFTagger as the last step, "
            "with the penalties that a search has found."
        )
    check_weights(tagger)
    if not isinstance(robust, (bool, np.bool_)):
        raise ValueError(f"robust must be True or False; got {robust!r}.")
    return weight_errors(tagger, rows, y, sample_weight, robust)


def explain(
    model: BaseEstimator, x: MatrixLike | TokensLike, *, input_features: Iterable[str] | None = None
) -> list:
    """Explain the label of each row of one raw sequence, or its segments.

    Parameters
    ----------
    model : Pipeline, search or tagger
        Fitted.
    x : one sequence
        An item of the list that ``model.predict`` takes; for a model that begins with
        ``ColumnTransformer``, a table with one row.
    input_features : array-like of str, default=None
        Names of the columns of ``X`` if it holds numbers.

    Returns
    -------
    list of TokenExplanation, or of SegmentExplanation if the model ends in a segmenter
        Probabilities are None if the model has none, such as :class:`sklseq.HMSVMTagger`.
    """
    names = feature_names(model, input_features)
    last: Any
    reads_table = _reads_table(model)
    if not reads_table:
        check_one_sequence(x)
    last, rows = last_step(model, _one_row(x) if reads_table else [x])
    if not hasattr(type(last), "explain"):
        raise ValueError(
            f"{type(last).__name__} has no explain; use CRFTagger, "
            "HMSVMTagger or SemiCRFSegmenter as the last step."
        )
    return last.explain(rows[0], feature_names=names)


def _one_row(x: Any) -> Any:
    shape = np.shape(x)
    if len(shape) != 2 or shape[0] != 1:
        raise ValueError("x must be a table with one row, such as X.iloc[:1].")
    return x


def _reads_table(model: BaseEstimator) -> bool:
    inner = unwrap(model)
    return isinstance(inner, Pipeline) and isinstance(inner[0], ColumnTransformer)
