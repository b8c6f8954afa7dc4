"""NUL characters in labels: NumPy drops them at the end of a string, so there they are refused."""

import numpy as np
import pytest

from sklseq import CRFTagger, HMSVMTagger, RowBlocks, SemiCRFSegmenter, Shards, ZScoreTagger
from sklseq.data.constraints import allowed_transitions, resolve_constraints
from sklseq.data.segment_labels import labels_to_segments, segments_to_labels
from sklseq.metrics import token_accuracy

X = [np.eye(2)[[0, 1, 0]], np.eye(2)[[1, 0]]]
Y = [["a", "b", "a"], ["b", "a"]]
SEGMENTS = [[(t, t + 1, label) for t, label in enumerate(one)] for one in Y]


def doors():
    """Functions of y, each of which reads labels."""
    crf = CRFTagger(max_iter=5).fit(X, Y)
    yield lambda y: CRFTagger(max_iter=5).fit(X, y)
    yield lambda y: CRFTagger(max_iter=5).fit([RowBlocks(x) for x in X], y)
    yield lambda y: CRFTagger(max_iter=5).fit(Shards([(X, y)]))
    yield lambda y: HMSVMTagger(max_iter=5).fit(X, y)
    yield lambda y: ZScoreTagger().fit(X, y)
    yield lambda y: CRFTagger().partial_fit(X, y, classes=sorted({*y[0], *y[1]}))
    yield lambda y: CRFTagger().partial_fit(X, Y, classes=[*"ab", *y[0], *y[1]])
    yield lambda y: ZScoreTagger().partial_fit(X, y, classes=["a", "b"])
    yield lambda y: crf.score(X, y)
    yield lambda y: crf.predict_log_proba_sequence(X, y)
    yield lambda y: token_accuracy(y, y)


def with_nul(rng):
    """A label with a NUL, whether at its end, and the labels of `Y` with it in one place."""
    text = rng.choice(["a", "b", "ab", ""])
    at = int(rng.integers(len(text) + 1))
    label = text[:at] + "\0" * int(rng.integers(1, 3)) + text[at:]
    y = [list(one) for one in Y]
    s = int(rng.integers(2))
    t = int(rng.integers(len(y[s])))
    y[s][t] = label
    return label, (s, t), y


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(12))
def test_nul_at_the_end_is_refused_and_elsewhere_kept(seed):
    label, (s, t), y = with_nul(np.random.default_rng(seed))
    for door in doors():
        if label.endswith("\0"):
            with pytest.raises(ValueError, match=r"Label .*x00' of .* ends in a NUL character"):
                door(y)
            continue
        try:
            found = door(y)
        except ValueError as error:
            found = str(error)
        # A fitted tagger, or one whose classes are given, does not know the label.
        unknown = isinstance(found, str) and f"Unknown label {label!r}" in found
        known = label in getattr(found, "classes_", np.array([label])).tolist()
        assert unknown or (known and not isinstance(found, str))
    if label.endswith("\0"):
        with pytest.raises(ValueError, match=rf"of y, at row {t} of sequence {s}, ends in a NUL"):
            CRFTagger().fit(X, y)


def test_schemes_and_constraints():
    for door in (allowed_transitions, lambda c, scheme: resolve_constraints(scheme, c)):
        with pytest.raises(ValueError, match=r"'I-x.x00' of classes ends in a NUL character"):
            door(["B-x", "I-x\0", "O"], "iob2")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(6))
def test_segments(seed):
    label, (s, t), y = with_nul(np.random.default_rng(seed))
    segments = [[(i, i + 1, one) for i, one in enumerate(labels)] for labels in y]
    bio = [["B-" + one for one in labels] for labels in y]
    fitted = SemiCRFSegmenter(outside=None, max_iter=5).fit(X, SEGMENTS)
    if not label.endswith("\0"):
        model = SemiCRFSegmenter(outside=None, max_iter=5)
        assert label in model.fit(X, segments).classes_.tolist()
        assert label in model.fit(X, bio).classes_.tolist()
        assert labels_to_segments(segments_to_labels(segments[s], len(y[s]))) == segments[s]
        return
    for call in (SemiCRFSegmenter(outside=None).fit, fitted.score):
        with pytest.raises(ValueError, match=f"Segment {t} of sequence {s} of y, .* ends in a NUL"):
            call(X, segments)
        with pytest.raises(ValueError, match=f"at row {t} of sequence {s}, ends in a NUL"):
            call(X, bio)
    with pytest.raises(ValueError, match=f"at row {t} of sequence 0, ends in a NUL"):
        segments_to_labels(segments[s], len(y[s]))
    with pytest.raises(ValueError, match="outside ends in a NUL"):
        SemiCRFSegmenter(outside=label).fit(X, [[], []])
