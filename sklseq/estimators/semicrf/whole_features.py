"""Features of whole segmentations, for ``SegmentReranker``: counts, order and lengths of labels."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from math import log2
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

# Counts above this number are one feature.
MOST = 3
# log p(label | text) of a label that does not occur in the training texts.
UNSEEN = -7.0


def whole_features(candidates: list, tokens: list | None) -> list[Counter]:
    """Return names and values of the features of each candidate segmentation of one sequence.

    Pairs of successive labels; number of segments of each label; order of labels; lengths, in steps
    of √2; with tokens, the open brackets, quotes, full stops and commas of each segment.
    """
    segments = {segment for one in candidates for segment in one}
    of_segment = {segment: list(_of_segment(segment, tokens)) for segment in segments}
    found = []
    for one in candidates:
        features = Counter(_of_labels([label for _, _, label in one]))
        for segment in one:
            features.update(of_segment[segment])
        features["segments"] = len(one) / 10
        features["inside"] = sum(stop - start for start, stop, _ in one) / 10
        found.append(features)
    return found


def _of_labels(labels: list) -> Iterator[str]:
    for label, after in zip(["^", *labels], [*labels, "$"]):
        yield f"next={label}>{after}"
    for label, n in Counter(labels).items():
        yield f"times={label}:{min(n, MOST)}"
    first = {label: k for k, label in reversed([*enumerate(labels)])}
    last = {label: k for k, label in enumerate(labels)}
    for label, later in product(first, last):
        if first[label] < last[later]:
            yield f"order={label}<{later}"


def _of_segment(segment: tuple, tokens: list | None) -> Iterator[str]:
    start, stop, label = segment
    yield f"length={label}:{int(2 * log2(stop - start))}"
    if tokens is None:
        return
    words = tokens[start:stop]
    text = " ".join(words)
    n_open, quotes = text.count("(") - text.count(")"), text.count('"') % 2
    yield f"open={label}:{n_open}:{quotes}"
    for mark in ".,":
        n = sum(word.endswith(mark) and len(word) > 2 for word in words[:-1])
        yield f"marks={label}:{mark}{min(n, MOST)}"


def fit_texts(X: list, y: list, weights: Sequence[float] | None = None) -> Pipeline | None:
    """Fit p(label | text of a segment) by logistic regression on n-grams of letters.

    Returns None if the segments have fewer than two labels. ``weights``: weights of sequences.
    """
    pairs = [(text_of(x, segment), segment[2]) for x, one in zip(X, y) for segment in one]
    if len({label for _, label in pairs}) < 2:
        return None
    grams = TfidfVectorizer(analyzer="char", ngram_range=(1, 4), sublinear_tf=True)
    model = make_pipeline(grams, LogisticRegression(C=10, max_iter=300))
    if weights is None:
        return model.fit(*zip(*pairs))
    of_segment = np.repeat(weights, [len(one) for one in y])
    with config_context(enable_metadata_routing=False):
        return model.fit(*zip(*pairs), logisticregression__sample_weight=of_segment)


def texts_log_proba(model: Pipeline | None, tokens: list, lists: list) -> list[list[float]]:
    """Return Σ log p(label | text) over the segments of each candidate, for each sequence.

    ``lists``: the candidate segmentations of each sequence.
    """
    asked = sorted(
        {(s, *segment[:2]) for s, found in enumerate(lists) for one in found for segment in one}
    )
    if model is None or not asked:
        return [[0.0] * len(found) for found in lists]
    rows: Any = model.predict_log_proba([text_of(tokens[s], span) for s, *span in asked])
    labels, known = model.classes_.tolist(), {}
    for key, row in zip(asked, np.maximum(rows, UNSEEN).tolist()):
        known.update({(*key, label): value for label, value in zip(labels, row)})
    return [
        [sum(known.get((s, *segment), UNSEEN) for segment in one) for one in found]
        for s, found in enumerate(lists)
    ]


def text_of(tokens: list, segment: Sequence) -> str:
    """Return the tokens of a segment, joined by spaces."""
    return " ".join(tokens[segment[0] : segment[1]])
