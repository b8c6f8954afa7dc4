"""Set of trained weights of a CRF or segmenter, their warm start, and the fitted attributes."""

from typing import Any

import numpy as np

from sklseq.estimators.weights import check_weights, dense_weights
from sklseq.objectives.scores.score_map import ScoreMap, Support, Weights, full_support


def trained_support(
    estimator: Any, seen: Support | None, n_labels: int, boundaries: bool = True
) -> Support:
    """Return the weights to train, given the observed support (None: all weights)."""
    support = full_support(n_labels)
    pairs = support.pairs if seen is None or estimator.all_possible_states else seen.pairs
    if seen is not None and not estimator.all_possible_transitions:
        support = seen
    ends = (support.start & boundaries, support.end & boundaries)
    return Support(pairs, support.transition, *ends)


def previous_weights(
    estimator: Any, scores: ScoreMap, classes: np.ndarray, vectorizer, intercept: bool = False
) -> np.ndarray:
    """The weights of the previous fit in the layout of ``scores``.

    ``intercept``: whether the last feature of ``scores`` is the intercept.
    """
    check_weights(estimator)
    rows = _rows_of_attributes(estimator.vectorizer_, vectorizer, estimator.coef_.shape[0])
    order = np.argsort(estimator.classes_)  # models read from CRFsuite are not sorted
    same = np.array_equal(estimator.classes_[order], classes)
    n, n_features = len(rows), scores.n_features - intercept
    if not same or n != n_features:
        raise ValueError(
            "warm_start=True needs the labels and features of the previous fit, "
            f"{estimator.classes_[order].tolist()!s:.200} and {n} features; got "
            f"{classes.tolist()!s:.200} and {n_features} features. Use warm_start=False."
        )
    coef = dense_weights(estimator.coef_[rows])[:, order]
    transition = estimator.transition_[np.ix_(order, order)]
    if intercept:
        coef = np.vstack([coef, np.broadcast_to(estimator.intercept_, len(order))[order]])
    of_triples = estimator.transition_coef_  # None in models read from CRFsuite
    if of_triples is not None:
        of_triples = of_triples[rows]
        if intercept:
            of_triples.resize(n + 1, of_triples.shape[1])
    ends = estimator.start_[order], estimator.end_[order]
    return scores.pack(Weights(coef, transition, *ends), of_triples)


def _rows_of_attributes(before: Any, now: Any, n: int) -> np.ndarray:
    # The previous number of each of n columns: attributes may occur in another order.
    known, names = (None if v is None else v.vocabulary_ for v in (before, now))
    if (known is None) != (names is None) or set(known or ()) != set(names or ()):
        raise ValueError(
            "warm_start=True needs the attributes of the previous fit; vectorise X once with "
            "DictFeatures, or use warm_start=False."
        )
    rows = np.arange(n)
    if names is not None:
        rows[list(names.values())] = [known[name] for name in names]
    return rows


def fitted_attributes(scores: ScoreMap, w: np.ndarray, classes: np.ndarray, vectorizer) -> dict:
    """The attributes of a fitted model with weights w."""
    weights = scores.unpack(w)
    attributes = {
        "classes_": classes,
        "coef_": weights.coef,
        "transition_": weights.transition,
        "start_": weights.start,
        "end_": weights.end,
        "transition_coef_": scores.unpack_triples(w),
        "_roles": scores.roles,
        "n_features_in_": scores.n_features,
        "vectorizer_": vectorizer,
    }
    if vectorizer is not None:
        attributes["feature_names_in_"] = vectorizer.get_feature_names_out()
    return attributes
