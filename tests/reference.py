"""Reference recursions of a linear chain: specification and test oracle of the kernels.

They handle one sequence in float64 and in the log domain, without optimisations. ``_chain.pyx``
must agree with these functions, and these with enumeration (``tests/oracles.py``). Transition
scores ψ have shape (L, L) or (T, L, L): matrix t is for transitions into row t, matrix 0 is unused.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp


def log_sum(x, axis=None, keepdims=False):
    """log Σ exp(x), -inf for an empty sum; of few numbers in a tenth of the time of SciPy's."""
    x = np.asarray(x)
    top = x.max(axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(top == -np.inf, x.dtype.type(0), top)
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(x - top).sum(axis=axis, keepdims=True)) + top
    return total if keepdims else total.squeeze(axis)[()]


def _fold(emission, start, end) -> np.ndarray:
    psi = np.array(emission, dtype=np.float64)
    if len(psi):
        psi[0] += 0 if start is None else start
        psi[-1] += 0 if end is None else end
    return psi


def _of_rows(transition, T: int) -> np.ndarray:
    # Transition scores of each row, shape (T, L, L).
    transition = np.asarray(transition, dtype=np.float64)
    return np.broadcast_to(transition, (T, *transition.shape[-2:]))


def score_path(labels, emission, transition, start=None, end=None):
    """s(y) = start(y_1) + Σ_t ψ_t(y_t) + Σ_t ψ(y_{t-1}, y_t) + end(y_T), of one path or several."""
    labels, psi = np.asarray(labels, dtype=int), _fold(emission, start, end)
    T = labels.shape[-1]
    steps = _of_rows(transition, T)[np.arange(1, T), labels[..., :-1], labels[..., 1:]]
    return psi[np.arange(T), labels].sum(axis=-1) + steps.sum(axis=-1)


def forward(psi: np.ndarray, transition: np.ndarray) -> np.ndarray:
    """log α_t(j) = ψ_t(j) + log Σ_i exp(log α_{t-1}(i) + ψ(i, j)), shape (T, L)."""
    log_alpha, transition = psi.copy(), _of_rows(transition, len(psi))
    for t in range(1, len(psi)):
        log_alpha[t] += log_sum(log_alpha[t - 1][:, None] + transition[t], axis=0)
    return log_alpha


def backward(psi: np.ndarray, transition: np.ndarray) -> np.ndarray:
    """log β_{t-1}(i) = log Σ_j exp(ψ(i, j) + ψ_t(j) + log β_t(j)), shape (T, L)."""
    log_beta, transition = np.zeros_like(psi), _of_rows(transition, len(psi))
    for t in range(len(psi) - 1, 0, -1):
        log_beta[t - 1] = log_sum(transition[t] + psi[t] + log_beta[t], axis=1)
    return log_beta


def forward_backward(emission, transition, start=None, end=None):
    """(log Z, μ, ξ), where μ_t(j) ∝ exp(log α_t(j) + log β_t(j)) and ξ is summed over t.

    Algorithm 1 of Ilić et al. (2010), Equations 31 to 35.

    Each row is normalised by its own sum, which equals Z up to rounding of large scores.
    """
    psi = _fold(emission, start, end)
    transition = _of_rows(transition, len(psi))
    pairwise = np.zeros(transition.shape[1:])
    if len(psi) == 0:
        return 0.0, psi, pairwise
    log_alpha, log_beta = forward(psi, transition), backward(psi, transition)
    for t in range(1, len(psi)):
        log_xi = log_alpha[t - 1][:, None] + transition[t] + psi[t] + log_beta[t]
        pairwise += np.exp(log_xi - log_sum(log_xi))
    log_mu = log_alpha + log_beta
    marginals = np.exp(log_mu - log_sum(log_mu, axis=1, keepdims=True))
    return log_sum(log_alpha[-1]), marginals, pairwise


def viterbi(emission, transition, start=None, end=None) -> tuple[np.ndarray, float]:
    """δ_t(j) = ψ_t(j) + max_i (δ_{t-1}(i) + ψ(i, j)); ties to the lowest label."""
    delta = _fold(emission, start, end)
    T = len(delta)
    transition = _of_rows(transition, T)
    labels = np.zeros(T, dtype=np.int32)
    if T == 0:
        return labels, 0.0
    for t in range(1, T):
        delta[t] += (delta[t - 1][:, None] + transition[t]).max(axis=0)
    labels[-1] = delta[-1].argmax()
    for t in range(T - 2, -1, -1):
        labels[t] = (delta[t] + transition[t + 1][:, labels[t + 1]]).argmax()
    return labels, float(delta[-1].max())


def expectation_semiring(emission, transition, row_features, pair_features, start=None, end=None):
    """(log Z, mean): Algorithm 2 of Ilić et al. (2010), the log-domain expectation semiring.

    Features f of shape (T, L, M) and g of shape (L, L, M), as in
    :func:`~sklseq.inference.expected_features`, whose convex combinations it is compared with:

        z_t(j) = Σ_i v_t(i, j) z_{t-1}(i),  v_t(i, j) = exp(ψ(i, j) + ψ_t(j)),
        h_t(j) = Σ_i v_t(i, j) (h_{t-1}(i) + z_{t-1}(i) g(i, j)) + z_t(j) f_t(j).

    z and h are its Equations 73 (start), 75 and 76 (recursion) and 78 (sum over labels). Two things
    differ from the paper: logarithms carry a sign, so that features may be negative; and after
    each row the largest z is divided out, so that logarithms do not grow with T.
    """
    psi, log_z = _fold(emission, start, end), 0.0
    if len(psi) == 0:
        return log_z, np.zeros(pair_features.shape[2])
    with np.errstate(divide="ignore"):
        log_f, log_g = np.log(np.abs(row_features)), np.log(np.abs(pair_features))
    z, sign = psi[0], np.sign(row_features[0])
    h = z[:, None] + log_f[0]
    for t in range(1, len(psi)):
        v = (transition + psi[t])[:, :, None]
        terms = np.stack(np.broadcast_arrays(v + h[:, None], v + z[:, None, None] + log_g))
        signs = np.stack(np.broadcast_arrays(sign[:, None], np.sign(pair_features)))
        z = psi[t] + log_sum(z[:, None] + transition, axis=0)
        h, sign = logsumexp(
            np.concatenate([terms.reshape(-1, *h.shape), (z[:, None] + log_f[t])[None]]),
            axis=0,
            b=np.concatenate([signs.reshape(-1, *h.shape), np.sign(row_features[t])[None]]),
            return_sign=True,
        )
        top = z.max()
        log_z, z, h = log_z + top, z - top, h - top
    last = log_sum(z)
    h, sign = logsumexp(h, axis=0, b=sign, return_sign=True)
    return log_z + last, sign * np.exp(h - last)


# ---------------------------------------------------------------- online decoding


class OnlineReference:
    """Online decoding by definition: each new row repeats all computations for pending rows.

    Rules and names are those of ``decode_online``; figures and sections are those of Narasimhan,
    Viola and Shilman (2006).
    """

    def __init__(
        self, transition, start=None, end=None, *, strategy="step", latency_cost=0.01,
        uncertainty="error", belief="forward", window_size=None, max_latency=None,
        restart="conflict", early=True, shared=None,
    ):  # fmt: skip
        self.transition = np.asarray(transition, dtype=np.float64)
        zeros = np.zeros(self.transition.shape[-1])
        self.start, self.end = zeros if start is None else start, zeros if end is None else end
        self.strategy, self.latency_cost = strategy, latency_cost
        self.uncertainty, self.belief, self.restart = uncertainty, belief, restart
        self.window_size = np.inf if window_size is None else window_size
        self.max_latency = np.inf if max_latency is None else max_latency
        self.early = early and strategy in ("step", "window", "closure")
        self.early = self.early and self.transition.ndim == 2
        if strategy == "chunk":
            self.window_size = min(self.window_size, self.max_latency + 1)
        shared = self.transition if shared is None else np.asarray(shared)
        self.lasting = can_go_on(shared) if shared.ndim == 2 else np.ones(len(zeros), dtype=bool)
        self.psi, self.labels, self.times, self.restarted = [], [], [], 0
        self.kept = (0, 0, None)

    def push(self, row, held=False) -> None:
        """Add a row and append the labels that are emitted to ``labels``; none if ``held``."""
        row = np.asarray(row, dtype=np.float64)
        self.psi.append(row if self.psi else row + self.start)
        while not held and len(self.labels) < len(self.psi) and self._emit_some():
            pass

    def finish(self) -> None:
        """End the sequence: emit the best path of all pending rows."""
        if len(self.labels) == len(self.psi):
            return
        last, self.psi[-1] = self.psi[-1], self.psi[-1] + self.end
        while len(self.labels) < len(self.psi):
            ended = self.psi[-1] is not last
            delta, paths, _, belief = self._beam(ended)
            if (delta > -np.inf).any():
                self._emit(paths[(delta if ended else belief).argmax()])
            elif self.psi[-1] is last:
                raise ValueError("No label is allowed after those that were emitted.")
            else:  # emitted labels forbid every end label
                self.psi[-1] = last

    def commit(self, n: int) -> None:
        """Emit the n oldest pending labels, on the path of the likeliest label so far."""
        wanted = len(self.labels) + n
        while len(self.labels) < wanted:
            delta, paths, _, logs = self._beam()
            if not (delta > -np.inf).any():
                raise ValueError("No label is allowed after those that were emitted.")
            self._emit(paths[self._best_of(self._hopeful(delta), logs), :n])

    def _hopeful(self, delta):
        # Survivors after which labels can follow for ever, or all of them if there are none.
        survives = delta > -np.inf
        lasting = survives & self.lasting
        return lasting if lasting.any() else survives

    def _best_of(self, labels, x):
        return np.where(labels, x, -np.inf).argmax()

    def _into(self, t):
        # Transition scores into row t.
        return self.transition if self.transition.ndim == 2 else self.transition[t]

    def _after(self, t, before):
        # (δ_t, best paths, log α_t if it is needed) from those of row t - 1; None: t is the first.
        row, first = self.psi[t], self.restarted
        labels = np.arange(len(row))[:, None]
        if before is None:
            if first:  # the label before this row is given
                row = row + self._into(first)[self.labels[first - 1]]
            return row, labels, row
        delta, paths, alpha = before
        scores = delta[:, None] + self._into(t)
        if self.belief == "forward":
            alpha = row + log_sum(alpha[:, None] + self._into(t), axis=0)
        return row + scores.max(axis=0), np.hstack([paths[scores.argmax(axis=0)], labels]), alpha

    def _at_last_row(self):
        # Those of the row before it are kept; the last may change, since finish() adds scores.
        if self.kept[0] != self.restarted:
            self.kept = (self.restarted, self.restarted, None)
        first, n, before = self.kept
        for t in range(n, len(self.psi)):
            self.kept = (first, t, before)
            before = self._after(t, before)
        return before

    def _beam(self, ended=False):
        # (δ_T, paths, P_T, logs), where paths[b] has the labels t0 to T of the best path that ends
        # in b, and logs are δ_T or those of the forward filter. δ_T(b) and logs(b) are -inf if b
        # does not survive.
        first, t0 = self.restarted, len(self.labels)
        delta, paths, alpha = self._at_last_row()
        belief = alpha if self.belief == "forward" else delta
        alive, p = delta > -np.inf, None
        if self.early and not ended:
            alive, p = self._one_row_ahead(delta)
        logs = np.where(alive, belief, -np.inf)
        with np.errstate(invalid="ignore"):
            if p is None or self.belief == "forward":
                p = np.exp(logs - logs.max())
            return np.where(alive, delta, -np.inf), paths[:, t0 - first :], p / p.sum(), logs

    def _one_row_ahead(self, delta):
        # (survivors, beliefs of best paths). Survivors are the best predecessors of the labels of
        # row T + 1, and the last label of the best path if the sequence ends at T. Beliefs are
        # those of row T + 1 with equal scores for its labels, or None if no label may follow.
        ahead, last = delta[:, None] + self.transition, delta + self.end
        best, before = ahead.max(axis=0), ahead.argmax(axis=0)
        reached = best > -np.inf
        alive = np.bincount(before[reached], minlength=len(delta)) > 0
        if last.max() > -np.inf:
            alive[last.argmax()] = True
        if not reached.any():
            return (alive if alive.any() else delta > -np.inf), None
        p = np.zeros_like(best)  # bincount would round extended precision
        np.add.at(p, before, np.exp(best - best.max()))
        return alive, p

    def measure(self, beam=None) -> tuple[float, np.ndarray]:
        """M_T(t0) and P̃_T(t0, ·) for the oldest pending row (§3.3.1)."""
        delta, paths, p, _ = beam or self._beam()
        pp = np.bincount(paths[:, 0], p, minlength=len(delta))
        if callable(self.uncertainty):
            return self.uncertainty(pp), pp
        if len(set(paths[delta > -np.inf, 0])) == 1:
            return 0.0, pp
        if self.uncertainty == "ambiguity":
            return 1.0, pp
        if self.uncertainty == "entropy":
            return -sum(x * np.log(x) for x in pp if x > 0), pp
        return np.delete(pp, pp.argmax()).sum(), pp  # 1 - max pp, without cancellation

    def _emit(self, labels, lossless=False) -> bool:
        n = len(self.labels)
        if n and self._into(n)[self.labels[-1], labels[0]] == -np.inf:
            self.restarted = len(self.labels)  # and try again
            return True
        self.labels += [int(label) for label in labels]
        self.times += [len(self.psi) - 1] * len(labels)
        if not lossless and self.restart == "always":
            self.restarted = len(self.labels)
        return len(labels) > 0

    def _emit_some(self) -> bool:
        delta, paths, p, logs = beam = self._beam()
        if not (delta > -np.inf).any():
            raise ValueError("No label is allowed after those that were emitted.")
        n, waited, hopeful = paths.shape[1], paths.shape[1] - 1, self._hopeful(delta)
        best, overdue = self._best_of(hopeful, logs), waited >= self.max_latency
        if self.strategy == "chunk":
            return n >= self.window_size and self._emit(paths[best])
        survivors = paths[delta > -np.inf]
        n_agreed = int((survivors == survivors[0]).all(axis=0).cumprod().sum())
        if self.strategy != "viterbi" and n_agreed:
            return self._emit(survivors[0, :n_agreed], lossless=True)
        patience = self.latency_cost * (waited + self.early)
        if self.strategy == "window":
            return self._emit_window(delta, paths, p, patience, overdue)
        goes_on = np.isin(np.arange(len(delta)), paths[hopeful, 0])
        if self.strategy == "step":
            m, pp = self.measure(beam)
            due = self.latency_cost > 0 and goes_on[pp.argmax()] and m <= patience
            return (overdue or due) and self._emit([self._best_of(goes_on, pp)])
        if self.belief == "forward" and not n_agreed:
            return overdue and self._emit([self._best_of(goes_on, self.measure(beam)[1])])
        return overdue and self._emit(paths[best, :1], lossless=n_agreed > 0)

    def _emit_window(self, delta, paths, p, patience, overdue) -> bool:
        # Loss_T(a, b): number of pending labels that differ between the paths that end in a and b.
        loss, hopeful = (
            (paths[:, None, :] != paths[None, :, :]).sum(axis=2) @ p,
            self._hopeful(delta),
        )
        best = self._best_of(hopeful if overdue else delta > -np.inf, -loss)
        due = self.latency_cost > 0 and hopeful[best] and loss[best] <= patience
        return (overdue or due) and self._emit(paths[best])


def can_go_on(transition) -> np.ndarray:
    """Whether L labels can follow each of L labels, so that labels can follow for ever."""
    allowed = (transition > -np.inf).astype(int)
    reached = np.eye(len(allowed), dtype=int)
    for _ in range(len(allowed)):
        reached = np.minimum(reached @ allowed, 1)
    return reached.any(axis=1)


def decode_online(emission, transition, start=None, end=None, **rule):
    """(labels, times) of one sequence, decoded row by row."""
    decoder = OnlineReference(transition, start, end, **rule)
    for row in emission:
        decoder.push(row)
    decoder.finish()
    return np.array(decoder.labels, dtype=int), np.array(decoder.times, dtype=int)
