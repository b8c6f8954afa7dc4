"""Models along paths of penalties end within tol of their minima, or warn."""

import warnings

import numpy as np
import pytest
from scipy import sparse

from sklseq import CRFTagger, CRFTaggerCV, Sequences
from sklseq.estimators.crf.crf_problem import CRFProblem

# Minima for the last penalties of a path of twelve, by seed: with tol = 1e-5.
L2S = np.geomspace(0.3, 3e-4, 12)
MINIMA = {
    4: [569.519423, 542.470916, 523.527561, 511.157502],
    64: [555.977124, 531.422623, 513.483668, 501.208995],
}


def windows(seed):
    """Windows of residues, and labels that follow sums of their scores, with noise."""
    rng = np.random.default_rng(seed)
    L, reach, n = int(rng.integers(4, 9)), int(rng.integers(3, 8)), int(rng.integers(6, 30))
    width, X, y = 2 * reach + 1, [], []
    scores = rng.normal(size=(width, 20, L)) / np.sqrt(width)
    for _ in range(n):
        T = int(rng.integers(30, 90))
        residues = rng.choice(20, T + 2 * reach, p=rng.dirichlet(np.full(20, 3.0)))
        seen = np.lib.stride_tricks.sliding_window_view(residues, width)
        s = sum(scores[k][seen[:, k]] for k in range(width))
        s = s + 0.7 * np.roll(s, 1, 0) + 0.7 * np.roll(s, -1, 0)
        y.append((s + rng.choice([0.5, 1.0]) * rng.gumbel(size=s.shape)).argmax(axis=1))
        columns = (seen + 20 * np.arange(width)).ravel()
        entries = np.ones(seen.size), columns, np.arange(0, seen.size + 1, width)
        X.append(sparse.csr_matrix(entries, (T, 20 * width)))
    offsets = np.cumsum([0, *map(len, y)])
    return Sequences(sparse.vstack(X).tocsr(), offsets), y


@pytest.mark.parametrize("seed", MINIMA)
def test_models_along_a_path_are_within_tol_where_the_objective_falls_slowly(seed, monkeypatch):
    # 1.00 and 1.19 tol above the minimum, without a warning, where the last two iterations of
    # about 30 told the end.
    found, solve = {}, CRFProblem.solve
    monkeypatch.setattr(CRFProblem, "solve", lambda self: found.setdefault(self.l2, solve(self)))
    X, y = windows(seed)
    every = np.arange(len(y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search = CRFTaggerCV(l1s=[0.03], l2s=L2S, cv=[(every, every[:1])], refit=False)
        search.fit(X, y)
    shares = [found[l2].value / least - 1 for l2, least in zip(L2S[-4:], MINIMA[seed])]
    assert max(shares) <= 0.8 * CRFTagger().tol
    assert min(shares) >= -1e-4
