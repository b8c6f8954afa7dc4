"""Upper bound of the excess of a strongly convex objective, from the last gradients of a run."""

import numpy as np

from sklseq._lib.tiny import TINY
from sklseq.solvers._history import History, _vectors

PLANES = 10  # previous points that are used, in addition to the current one


def proved_excess(
    history: History, values: list, v: np.ndarray, convexity: float, scale: np.ndarray | None
) -> float:
    """Upper bound of f(w) - min f, where f - m/2 · ‖w‖² is convex for m = ``convexity``.

    For each of the last points w_k, with gradients g_k,

        f(u) ≥ f(w_k) + g_k · (u - w_k) + m/2 · ‖u - w_k‖².

    The mean of these with weights λ_k ≥ 0 of sum 1, and ‖u - w̄‖² ≤ Σ_k λ_k ‖u - w_k‖², give

        min f ≥ Σ_k λ_k (f(w_k) + g_k · (w̄ - w_k)) - ‖ḡ‖² / 2m,      w̄ = Σ_k λ_k w_k,

    with ḡ likewise. For λ at the current point alone, this is the bound by its gradient; the mean
    of the last gradients is much shorter. Any λ gives a bound; the best one is approximated.

    Parameters
    ----------
    history : History
        Pairs of whole vectors. w_k and g_k are sums of pairs, so the bound takes a mean of vectors
        only if there is a scale, and no evaluation.
    values : list of float
        f at the start and after each iteration.
    v : ndarray
        The current gradient.
    convexity : float
    scale : ndarray or None
        As of :func:`lbfgs`: the pairs and v are those of scale · w, and norms those of w.
    """
    m, y = convexity, history.memory
    slots = (history.slot - np.arange(min(history.used, PLANES))) % y  # newest first
    sums = np.tril(np.ones((len(slots) + 1, len(slots))), -1)  # w_k = w - sums[k] · s
    s_v, y_v, v_v = (history.with_v[at] for at in (slots, y + slots, -1))
    s_y, y_y = (history.gram[np.ix_(at, y + slots)] for at in (slots, y + slots))
    s_s = sums @ history.gram[np.ix_(slots, slots)] @ sums.T
    g_v = -(sums @ y_v)
    g_g = v_v + g_v + g_v[:, None] + sums @ y_y @ sums.T
    g_s = sums @ s_v - sums @ s_y.T @ sums.T  # [k, j]: g_k · (w - w_j)
    heights = np.array(values[: -len(slots) - 2 : -1]) + np.diag(g_s)
    # In place of norms of w: norms of scale · w times their ratio for v.
    ratio = 1.0 if scale is None else float(np.square(v * scale, dtype=np.float64).sum()) / v_v
    Q = ratio / m * g_g + g_s + g_s.T + m / ratio * s_s
    weights = best_mean(Q, heights + m / (2 * ratio) * np.diag(s_s))
    squares = weights @ g_g @ weights
    if scale is not None:
        squares = _scaled_square(history, y + slots, -(weights @ sums), v, scale)
    bound = weights @ heights - weights @ g_s @ weights - squares / (2 * m)
    return float(values[-1] - bound)


def _scaled_square(
    history: History, at: np.ndarray, c: np.ndarray, v: np.ndarray, scale: np.ndarray
) -> float:
    # ‖scale · (v + Σ_k c_k z_k)‖², where z_k are the vectors of pairs with numbers ``at``.
    of_all, mean = np.zeros(len(history.pairs) + 1), np.empty_like(v)
    of_all[at], of_all[-1] = c, 1
    history.combine(of_all, v, mean)
    return sum(history.in_spans(_vectors.scaled_square, mean, scale))


def best_mean(Q: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Weights λ ≥ 0 of sum 1 for which λᵀQλ / 2 - c · λ is small.

    They minimise it where no entry is 0. While an entry is negative, the least one is set to 0 and
    the others are computed again, so they need not be optimal.
    """
    kept, unit = np.arange(len(c)), max(np.trace(Q) / len(c), TINY)
    Q, c = Q / unit, c / unit
    while True:
        n = len(kept)
        system = np.ones((n + 1, n + 1))
        system[:n, :n] = Q[np.ix_(kept, kept)]
        system[range(n), range(n)] += 1e-10  # points may coincide
        system[n, n] = 0
        found = np.linalg.solve(system, np.append(c[kept], 1.0))[:n]
        if n == 1 or (found >= 0).all():
            break
        kept = np.delete(kept, found.argmin())
    weights = np.zeros(len(c))
    weights[kept] = found / found.sum() if n > 1 else 1.0
    return weights
