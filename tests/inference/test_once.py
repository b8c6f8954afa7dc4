"""Labels that occur at most once, against the best of all label paths that obey the rule."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklseq.data.span_rules import find_by_rules, span_rules
from sklseq.inference import viterbi
from sklseq.inference.chain import once as module
from sklseq.inference.chain.linear_chain import PlainScores
from sklseq.inference.chain.row_transitions import RowTransitions
from tests.oracles import enumerate_chain

CLASSES = {
    "iob2": ["B-x", "B-y", "I-x", "O"],
    "iobes": ["B-x", "E-x", "I-x", "S-x", "O"],
    "runs": ["O", "city", "number", "zip"],
    "integers": [0, 1, 2],
}


def once_paths(potentials, *rule):
    emission, transition, start, end, offsets = potentials
    best, _ = viterbi(emission, transition, offsets, start=start, end=end)
    if transition.ndim == 3:
        transition = RowTransitions.from_dense(transition)
    scores = PlainScores.of_potentials(emission, transition, start, end, offsets)
    return module.best_paths_once(best, scores, *rule)


def obeys(path, rules, once):
    types = find_by_rules(path, np.array([0, len(path)]), rules)[2]
    return (np.bincount(types, minlength=len(once))[once] <= 1).all()


def check(
    seed, name, lengths=(5, 0, 1, 4), forbid=0.2, dtype=np.float64, of_rows=False,
    otherwise_best=False,
):  # fmt: skip
    """Potentials that like to repeat labels; ``of_rows``: transitions that differ by row.

    Returns the number of sequences without a valid path.
    """
    rng, classes = np.random.default_rng(seed), np.array(CLASSES[name])
    rules, L = span_rules(classes), len(classes)
    once = rng.random(len(rules.types)) < 0.8
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    emission = 2 * rng.normal(size=(offsets[-1], L)).astype(dtype)
    transition, start, end = (
        rng.normal(size=size).astype(dtype)
        for size in ((offsets[-1], L, L) if of_rows else (L, L), L, L)
    )
    transition[rng.random(transition.shape) < forbid] = -np.inf
    # There is always a path: of one label, or of labels that follow each other in a circle.
    transition[..., np.arange(L), np.arange(L) - int(otherwise_best)] = 0.1
    potentials, n_invalid = (emission, transition, start, end, offsets), 0
    codes = once_paths(potentials, rules, once, otherwise_best)
    plain, _ = viterbi(emission, transition, offsets, start=start, end=end)
    for a, b in zip(offsets[:-1], offsets[1:]):
        steps = transition[a:b] if of_rows else transition
        wide = [x.astype(np.float64) for x in (emission[a:b], steps, start, end)]
        paths, scores, *_ = enumerate_chain(*wide)
        valid = np.array([obeys(path, rules, once) for path in paths])
        values = np.where(valid, scores, -np.inf)
        if otherwise_best and values.max() == -np.inf:
            n_invalid += scores.max() > -np.inf
            assert_array_equal(codes[a:b], plain[a:b])
            continue
        assert_array_equal(codes[a:b], paths[values.argmax()])
        if obeys(plain[a:b], rules, once):
            assert_array_equal(codes[a:b], plain[a:b])
    return n_invalid


def test_best_path_of_all_where_none_obeys():
    """Also where searches before the last one found paths that repeat other types."""
    names = [name for name in CLASSES if name != "iobes"]
    found = [
        check(seed, name, (4, 3, 5), 0.9, otherwise_best=True)
        for name in names
        for seed in range(8)
    ]
    assert sum(found) > 10


@pytest.mark.parametrize("name", CLASSES)
def test_best_path_that_obeys_the_rule(name):
    for seed in range(3):
        check(seed, name)
        check(seed, name, of_rows=True)


@pytest.mark.parametrize("name", CLASSES)
def test_float32(name):
    check(5, name, dtype=np.float32)


def test_ties_go_to_low_labels():
    rules = span_rules(np.array(["a", "b", "c"]))
    everything = np.zeros((4, 3)), np.zeros((3, 3)), None, None, np.array([0, 4])
    codes = once_paths(everything, rules, np.ones(3, dtype=bool))
    assert_array_equal(codes, [0, 0, 0, 0])
    emission = np.zeros((4, 3))
    emission[[0, 3], 1], emission[1, 1] = 5, -np.inf  # b in row 0 or in row 3, with many paths each
    codes = once_paths((emission, *everything[1:]), rules, np.ones(3, dtype=bool))
    assert_array_equal(codes, [1, 0, 0, 0])


def test_long_sequences_and_many_types():
    rng = np.random.default_rng(0)
    n, L = 400, 6
    emission, transition = rng.normal(size=(n, L)), np.zeros((L, L))
    rules = span_rules(np.array(["O", *"abcde"]))
    once = np.array([label != "O" for label in rules.types])
    offsets = np.array([0, n])
    codes = once_paths((emission, transition, None, None, offsets), rules, once)
    assert obeys(codes, rules, once)
    # By the order in which labels occur: every order of five runs among outside rows.
    spread = emission - emission[:, :1]
    best = runs_in_any_order(spread[:, 1:])
    assert_allclose(spread[np.arange(n), codes].sum(), best)


def runs_in_any_order(gain):
    """Largest sum of one run for each column, that do not overlap: slow and obvious."""
    k = gain.shape[1]
    # best[s][state]: rows so far, columns used; state 0 outside, j in a run of column j - 1.
    best = {(0, 0): 0.0}
    for row in gain:
        following = {}
        for (used, state), value in best.items():
            options = [((used, 0), 0.0)]
            options += [((used | 1 << j, j + 1), row[j]) for j in range(k) if not used >> j & 1]
            options += [((used, state), row[state - 1])] if state else []
            for key, more in options:
                following[key] = max(following.get(key, -np.inf), value + more)
        best = following
    return max(best.values())


def test_errors():
    rules = span_rules(np.array(["a", "b"]))
    forbidden = np.array([[-np.inf, 0.0], [0.0, -np.inf]])  # a and b in turn
    potentials = np.zeros((5, 2)), forbidden, None, None, np.array([0, 2, 5])
    with pytest.raises(ValueError, match="Sequence 1 has no allowed label path in which"):
        once_paths(potentials, rules, np.ones(2, dtype=bool))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_POINTERS", 5)
        with pytest.raises(ValueError, match="of sequence 1, of 3 rows, repeat 1 label, too many"):
            once_paths(potentials, rules, np.ones(2, dtype=bool))
