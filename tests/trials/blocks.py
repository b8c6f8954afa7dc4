"""Sources that change between visits: python -m tests.trials.blocks [10000]

Rows or labels of random sequences in blocks are changed at a random visit, in a random way, for
every gradient. Whatever the change, fit has to end with one sentence, and keep the model of the
last iteration if there was one; where nothing that counts was changed, with a model.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections import Counter

import numpy as np
from scipy import sparse

from sklseq import CRFTagger, RowBlocks
from sklseq.data.sequences import check_entries
from sklseq.objectives.likelihood import gradient_plan as _plan
from sklseq.objectives.likelihood import long as _long

__all__ = ["main"]

FORMS = ("dense", "csr", "float32", "ones", "integers", "csc")
GRADIENTS = ("emp", "forward-backward", "checkpoint", "auto")


def rows_of(rng, n: int, m: int, form: str) -> np.ndarray:
    X = rng.normal(size=(n, m)) * (rng.random((n, m)) < 0.6)
    if form in ("ones", "integers"):
        X = np.sign(X) if form == "integers" else (X > 0)
    return X.astype({"float32": np.float32, "integers": np.int64}.get(form, np.float64))


def as_form(X: np.ndarray, form: str):
    make = {"csr": sparse.csr_matrix, "ones": sparse.csr_array, "csc": sparse.csc_matrix}
    return make.get(form, np.asarray)(X)


def cut(rng, X: np.ndarray, form: str) -> list:
    cuts = np.sort(rng.integers(0, len(X) + 1, rng.integers(0, 6)))
    return [as_form(part, form) for part in np.split(X, cuts)]


# ------------------------------------------------------------------------------ what may happen


def change_values(rng, X):
    t, j = (rng.integers(n) for n in X.shape)
    X[t, j] = rng.choice([X[t, j] + 1, -X[t, j], 0, 1e-300, 1e18])
    return X


def change_to_not_finite(rng, X):
    X = X.astype(np.float64)
    X[rng.integers(len(X)), rng.integers(X.shape[1])] = rng.choice([np.nan, np.inf, -np.inf])
    return X


def change_places(rng, X):
    axis = rng.integers(2)
    order = rng.permutation(X.shape[axis])
    return np.take(X, order, axis=axis)


def drop_rows(rng, X):
    return np.delete(X, rng.integers(len(X), size=rng.integers(1, len(X) + 1)), axis=0)


def add_rows(rng, X):
    return np.concatenate([X, X[: rng.integers(1, len(X) + 1)]])


def widen(rng, X):
    return np.pad(X, ((0, 0), (0, rng.integers(1, 4))))


def narrow(rng, X):
    return X[:, : rng.integers(X.shape[1])]


ROW_CHANGES = (
    change_values, change_to_not_finite, change_places, drop_rows, add_rows, widen, narrow,
)  # fmt: skip


def damage_columns(rng, block):
    block.indices[rng.integers(len(block.indices))] = rng.choice([-1, -(10**8), 50, 10**8])
    return block


def damage_starts(rng, block):
    block.indptr[rng.integers(len(block.indptr))] = rng.choice([-(10**8), -1, 10**4, 10**8])
    return block


def damage_values(rng, block):
    block.data = block.data[: len(block.data) // 2]
    return block


def widen_far(rng, block):
    block.indices[:] = block.indices * 10**6
    return type(block)((block.data, block.indices, block.indptr), shape=(block.shape[0], 10**8))


def other_form(rng, block):
    return block.toarray() if sparse.issparse(block) else sparse.csr_matrix(block)


def other_numbers(rng, block):
    kinds = [np.float32, np.int32, np.float64, np.complex128, object, bool]
    return block.astype(kinds[rng.integers(len(kinds))])


def no_block(rng, block):
    return [None, "x", np.zeros(3), np.zeros((2, 2, 2)), np.zeros((1, 0))][rng.integers(5)]


BLOCK_CHANGES = (other_form, other_numbers, no_block)
CSR_CHANGES = (damage_columns, damage_starts, damage_values, widen_far)


class Changing:
    """Blocks of rows that are others at one visit, or from it on."""

    def __init__(self, rng, X, form: str, visit: int):
        self.rng, self.X, self.form, self.visit = rng, X, form, visit
        self.visits, self.what, self.counts = 0, "", False
        self.for_good = rng.random() < 0.5

    def __call__(self):
        self.visits += 1
        changed = self.visits == self.visit or (self.for_good and self.visits > self.visit)
        return iter(self.changed() if changed else cut(self.rng, self.X, self.form))

    def changed(self) -> list:
        kind = self.rng.random()
        if kind < 0.5:
            return self.change_rows()
        blocks = cut(self.rng, self.X, self.form)
        whole = [k for k, block in enumerate(blocks) if sparse.issparse(block) and block.nnz]
        csr = bool(whole) and self.form in ("csr", "ones", "csc") and kind < 0.75
        choices = CSR_CHANGES if csr else BLOCK_CHANGES
        k = int(self.rng.choice(whole)) if csr else int(self.rng.integers(len(blocks)))
        change = choices[self.rng.integers(len(choices))]
        self.what = change.__name__
        before = blocks[k].copy()
        blocks[k] = change(self.rng, blocks[k])
        self.counts |= differ(before, blocks[k])
        return blocks

    def change_rows(self) -> list:
        change = ROW_CHANGES[self.rng.integers(len(ROW_CHANGES))]
        self.what = change.__name__
        X = change(self.rng, self.X.copy())
        self.counts |= X.shape != self.X.shape or not np.array_equal(X, self.X)
        return cut(self.rng, X, self.form)


def differ(before, after) -> bool:
    """Whether a block is another one for the kernels."""
    if not (sparse.issparse(after) or isinstance(after, np.ndarray)) or after.ndim != 2:
        return True
    if after.shape != before.shape or after.dtype.kind not in "biuf":
        return True
    if isinstance(after, (sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix)):
        by_rows = after.T if after.format == "csc" else after
        if check_entries(by_rows) is not None:
            return True
    a, b = (x.toarray() if sparse.issparse(x) else x for x in (before, after))
    return not np.array_equal(a, b)


# ------------------------------------------------------------------------------ one trial


def trial(seed: int) -> str:
    """Change one source; what was changed, and whether it was refused."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(2, 300)), int(rng.integers(1, 6))
    form = FORMS[rng.integers(len(FORMS))]
    X = rows_of(rng, n, m, form)
    y = rng.integers(3, size=n)
    y[0], y[-1] = 0, 1
    gradient = GRADIENTS[rng.integers(len(GRADIENTS))]
    tagger = CRFTagger(gradient=gradient, max_iter=4, tol=0.0)
    if gradient == "checkpoint":
        return _in_memory(rng, tagger, X, form, y)
    if rng.random() < 0.15:
        return _labels(rng, tagger, X, form, y)
    source = Changing(rng, X, form, int(rng.integers(1, 9)))
    said = fitted(tagger, [source], [y])
    if said is None and source.counts:
        raise AssertionError(f"seed {seed}: {source.what} at visit {source.visit} was accepted")
    if said is not None and not source.what:
        raise AssertionError(f"seed {seed}: nothing was changed, but {said}")
    return f"{source.what or 'nothing'} {'accepted' if said is None else 'refused'}"


def _in_memory(rng, tagger, X, form, y) -> str:
    # Arrays and matrices that somebody writes into between two evaluations.
    X = as_form(X, "csr" if form == "csc" else form)
    before, visit, evaluations = X.copy(), int(rng.integers(1, 4)), 0
    evaluate = _long.LongLogLikelihood.value_and_gradient

    def changed(self, w, gradient):
        nonlocal evaluations
        evaluations += 1
        if evaluations == visit:
            write(rng, X)
        return evaluate(self, w, gradient)

    _long.LongLogLikelihood.value_and_gradient = changed
    try:
        said = fitted(tagger, [RowBlocks(X)], [y])
    finally:
        _long.LongLogLikelihood.value_and_gradient = evaluate
    differs = evaluations >= visit and differ(before, X)
    # What was converted when it was first read is not looked at again.
    copied = form == "ones" or (sparse.issparse(X) and X.dtype != np.float64)
    if said is None and differs and not copied:
        raise AssertionError(f"a change in memory was accepted: {form}, {before} {X}")
    return f"write {'accepted' if said is None else 'refused'}"


def write(rng, X) -> None:
    if not sparse.issparse(X):
        X[rng.integers(len(X)), rng.integers(X.shape[1])] += 1
    elif X.nnz:
        choice = (damage_columns, damage_starts)[rng.integers(2)]
        if rng.random() < 0.4:
            X.data[rng.integers(X.nnz)] += 1
        else:
            choice(rng, X)


def _labels(rng, tagger, X, form, y) -> str:
    # Labels are read twice before training.
    reads, other = 0, y.copy()
    kind = rng.integers(5)
    if kind == 0:
        other[rng.integers(len(y))] = rng.integers(4)
    other = (other, other[:-1], np.append(y, 0), y.astype(str), y[::-1])[kind]

    def read():
        nonlocal reads
        reads += 1
        labels = other if reads == 2 else y
        return iter(np.split(labels, np.sort(rng.integers(0, len(labels), 2))))

    same = other.dtype == y.dtype and np.array_equal(other, y)
    said = fitted(tagger, [lambda: iter([as_form(X, form)])], [read])
    if (said is None) != same:
        raise AssertionError(f"labels changed ({kind}): {said}")
    return f"labels {'accepted' if said is None else 'refused'}"


def fitted(tagger, X, y) -> str | None:
    """Fit; None, or what a ValueError said. Anything else that is raised is a fault."""
    said = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tagger.fit(X, y)
        except ValueError as error:
            said = str(error)
    kept = said is None or "of iteration" in said
    assert kept == hasattr(tagger, "coef_"), (said, vars(tagger))
    assert not kept or np.isfinite(tagger.coef_).all()
    if said is not None:
        assert "sequence 0" in said.lower() or "at least one feature; got 0" in said, said
    return said


def main(n: int) -> None:
    """So many trials; a crash or an AssertionError ends them."""
    rows, least = _plan.BLOCK_ROWS, _plan.LEAST_ROWS
    _plan.BLOCK_ROWS = _plan.LEAST_ROWS = 64  # several blocks in short sequences
    start, found = time.perf_counter(), Counter()
    try:
        for seed in range(n):
            found[trial(seed)] += 1
    finally:
        _plan.BLOCK_ROWS, _plan.LEAST_ROWS = rows, least
    for what, times in sorted(found.items()):
        print(f"{times:6} {what}")
    print(f"{n} sources, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
