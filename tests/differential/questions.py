"""What is asked about chains of ``sklseq.inference`` and of the gradients.

Each question takes a case and yields (what, answer, slow answer, tolerance). A question that does
not apply to a case yields nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from unittest import mock

import numpy as np
from scipy import sparse

from sklseq import Sequences
from sklseq._lib.threads import Threads
from sklseq.data.constraints import Constraints
from sklseq.data.input_kinds import blocks_of
from sklseq.data.label_blocks import label_blocks
from sklseq.inference import (
    decode_online,
    entropy,
    expected_features,
    forward_backward,
    nbest,
    sample,
    viterbi,
)
from sklseq.objectives.likelihood import gradient_plan
from sklseq.objectives.likelihood.gradient_plan import Plan, plan_gradient
from sklseq.objectives.likelihood.likelihood import LogLikelihood
from sklseq.objectives.likelihood.long import LongLogLikelihood
from sklseq.objectives.likelihood.long_data import LongData
from sklseq.objectives.likelihood.passes import Checkpoints, OnePass, Stored, StoredOnce
from sklseq.objectives.likelihood.sharded import ShardedLogLikelihood
from sklseq.objectives.likelihood.summary import LabelledRows
from sklseq.objectives.margin.hinge import Margin, PathLoss, StructuredHinge, linear_rows
from sklseq.objectives.scores.score_map import ScoreMap, Weights, full_support
from sklseq.objectives.zscore.moments import Sample
from sklseq.objectives.zscore.path_moments import AllowedMoments
from sklseq.online import OnlineDecoding

from .reference import Chain, Online
from .structures import ChainCase

__all__ = ["LONG_QUESTIONS", "QUESTIONS", "defined", "law", "rules"]


def refused(case: ChainCase, ask) -> tuple:
    """That a question about chains without a path is refused, by name."""
    try:
        ask()
    except ValueError as error:
        return "refusal", "has no allowed label path" in str(error), True, 0
    return "refusal", False, True, 0


def sums(case: ChainCase) -> Iterator[tuple]:
    args, ends = case.arguments
    if case.impossible:
        yield refused(case, lambda: forward_backward(*args, **ends))
        return
    weights = case.rng.random(len(case.chains)) + 0.5
    log_z, marginals, pairwise = forward_backward(*args, **ends, weights=weights)
    tolerance = case.slack
    yield "log Z", log_z, [chain.log_z for chain in case.chains], tolerance
    # However long the chain is: the rounding of some rows, and where logarithms are, theirs.
    rounded = 64 * np.finfo(marginals.dtype).eps * (4 + np.sqrt(case.n_labels))
    row_sums = marginals.sum(axis=1, dtype=float)
    yield "sums of marginals", row_sums, np.ones(len(row_sums)), rounded + case.slack_in(float)
    yield "marginals", marginals, np.concatenate([c.marginals for c in case.chains]), tolerance
    wanted = sum(w * c.pairs.sum(axis=0) for w, c in zip(weights, case.chains))
    yield "pair marginals", pairwise, wanted, case.one_sign * case.slack_of(len(case.emission))


def best_path(case: ChainCase) -> Iterator[tuple]:
    args, ends = case.arguments
    if case.impossible:
        yield refused(case, lambda: viterbi(*args, **ends))
        return
    labels, scores = viterbi(*args, **ends)
    best = [chain.score(chain.best) for chain in case.chains]
    paths = np.split(labels, case.offsets[1:-1])
    yield "score", scores, best, case.one_sign * case.slack
    of_paths = [chain.score(path) for chain, path in zip(case.chains, paths)]
    yield "score of the labels", of_paths, best, case.slack
    if case.recipe.exact:
        yield "labels", labels, np.concatenate([chain.best for chain in case.chains]), 0


def n_best(case: ChainCase) -> Iterator[tuple]:
    args, ends = case.arguments
    n = int(case.rng.choice([1, 2, 5, 12]))
    if case.impossible:
        yield refused(case, lambda: nbest(*args, n, **ends))
        return
    for chain, (paths, scores) in zip(case.chains, nbest(*args, n, **ends)):
        yield "scores", scores, chain.best_scores(n), case.slack
        of_paths = [chain.score(path) for path in paths]
        yield "scores of the labels", of_paths, scores, case.slack
        yield "different paths", len({path.tobytes() for path in paths}), len(paths), 0


N_SAMPLES = 200


def frequencies_allowed(p: np.ndarray, n: int) -> np.ndarray:
    """How far the mean of n independent draws of means p in [0, 1] may be from p.

    Bernstein's inequality at 1e-13 a side: 10⁸ comparisons pass with probability 0.99998.
    Nothing where p is 0.
    """
    log = np.log(1e13)
    width = np.sqrt(2 * p * (1 - p) * log / n) + log / (3 * n)
    return np.where(p > 0, width, 0)


def law_of_samples(case: ChainCase) -> Iterator[tuple]:
    args, ends = case.arguments
    if case.impossible:
        yield refused(case, lambda: sample(*args, **ends))
        return
    drawn = sample(*args, N_SAMPLES, **ends, random_state=case.seed)
    labels = np.arange(case.n_labels)
    for chain, paths in zip(case.chains, np.split(drawn, case.offsets[1:-1], axis=1)):
        is_label = paths[:, :, None] == labels
        yield from law("labels", is_label, chain.marginals)
        both = is_label[:, :-1, :, None] & is_label[:, 1:, None, :]
        yield from law("pairs", both, chain.pairs)


def law(what: str, indicators: np.ndarray, p: np.ndarray) -> Iterator[tuple]:
    # Where p is below the smallest number, nothing is ever drawn.
    p = np.clip(np.where(p > 1e-300, p, 0), 0, 1)
    apart = np.abs(indicators.mean(axis=0) - p)
    yield what, np.maximum(apart - frequencies_allowed(p, len(indicators)), 0), np.zeros(p.shape), 0


def features(case: ChainCase) -> Iterator[tuple]:
    args, ends = case.arguments
    if case.impossible:
        yield refused(case, lambda: expected_features(*args, **ends))
        return
    M, L = 2, case.n_labels
    row, pair = case.rng.random((len(case.emission), L, M)), case.rng.random((L, L, M))
    given = {"row_features": row, "pair_features": pair, **ends}
    answer = expected_features(*args, **given, order=2)
    tolerance, several = case.slack, case.slack_of(len(case.emission))
    log_z = [chain.log_z for chain in case.chains]
    yield "log Z", answer.log_z, log_z, tolerance
    for s, chain in enumerate(case.chains):
        rows = slice(case.offsets[s], case.offsets[s + 1])
        mean, covariance = chain.moments(row[rows], pair)
        yield "mean", answer.mean[s], mean, several
        yield "covariance", answer.covariance[s], covariance, case.slack_of(len(case.emission) ** 2)
        yield "entropy", answer.entropy[s], chain.entropy, several


def entropies(case: ChainCase) -> Iterator[tuple]:
    args, ends = case.arguments
    if case.impossible:
        yield refused(case, lambda: entropy(*args, **ends))
        return
    wanted = [chain.entropy for chain in case.chains]
    yield "entropy", entropy(*args, **ends), wanted, case.slack_of(len(case.emission))


# ---------------------------------------------------------------------- gradients

# What makes a plan of the number of rows of a block; None: packed sequences.
PLANS = {
    "forward-backward": None,
    "forward-backward in blocks": lambda n: Plan("", Stored, n, ""),
    "forward-backward in blocks, recomputed": lambda n: Plan("", StoredOnce, n, ""),
    "checkpoint": lambda n: Plan("", Checkpoints, n, ""),
    "checkpoint, some rows kept": lambda n: Plan("", Checkpoints, n, "", 2e4),
    "emp": lambda n: Plan("", OnePass, n, "", 1e9),
    "emp or checkpoint": lambda n: Plan("", OnePass, n, "", 2e4, or_checkpoint=True),
}
# What a row of a block needs with these gradients is the budget of "auto"; None: it is ample.
BUDGETS = ["checkpoint", "streaming", None]
N_SHARDS = 3
N_PLANS = 4  # of each case


def _automatic(case: ChainCase, least: str | None) -> Plan:
    """What "auto" chooses; blocks may be of few rows, or no chain would be long."""
    packed, random_access = bool(case.seed % 2), least != "streaming" or case.seed % 3 > 0
    with mock.patch.object(gradient_plan, "LEAST_ROWS", 1):
        budget = 2 * sum(gradient_plan._sizes(least, case.n_labels)) if least else 1e9
        ways = {"packed": packed, "random_access": random_access, "budget": budget}
        plan = plan_gradient("auto", case.longest, case.n_labels, **ways)
    # A feature of each row leaves no room for all that waits: where checkpoints cannot, it has it.
    return plan if random_access else plan._replace(keep=1e9)


def gradients(case: ChainCase) -> Iterator[tuple]:
    """log p of the best paths and its gradient, of features that are the numbers of rows."""
    if case.impossible or case.recipe.holes or len(case.emission) == 0:
        return
    y = np.concatenate([chain.best for chain in case.chains])
    weights = case.rng.random(len(case.chains)) + 0.5
    weights[np.diff(case.offsets) == 0] = 1
    wanted = _slow_gradient(case, weights)
    value = sum(w * (c.log_z - c.score(c.best)) for w, c in zip(weights, case.chains))
    form = (sparse.eye, np.eye)[int(case.rng.integers(2))]
    X = Sequences(form(len(y), dtype=case.emission.dtype), case.offsets)
    plans = _plans(case)
    for name in (f"{N_SHARDS} shards", *case.rng.choice(list(plans), N_PLANS, replace=False)):
        made = (
            _made(case, X, y, weights, plans[name])
            if name in plans
            else (_sharded(case, X, y, weights))
        )
        got, answers = _evaluate(case, made)
        yield f"value, {name}", got, value, case.slack_of(len(y))
        for part, a, b, n in zip(Weights._fields, answers, wanted, (1, len(y), 1, 1)):
            factor = case.one_sign if part == "transition" else 1
            yield f"{part}, {name}", a, b, factor * case.slack_of(n * len(weights))


def _slow_gradient(case: ChainCase, weights: np.ndarray) -> Weights:
    L = case.n_labels
    coef = np.zeros(case.emission.shape, np.longdouble)
    transition, ends = np.zeros((L, L), np.longdouble), np.zeros((2, L), np.longdouble)
    for s, (w, chain) in enumerate(zip(weights, case.chains)):
        residual, y = chain.marginals.copy(), chain.best
        residual[np.arange(len(y)), y] -= 1
        coef[case.offsets[s] : case.offsets[s + 1]] = w * residual
        transition += w * chain.pairs.sum(axis=0)
        np.add.at(transition, (y[:-1], y[1:]), -w)
        if len(y):
            ends += w * residual[[0, -1]]
    return Weights(coef, transition, *ends)


def _plans(case: ChainCase) -> dict[str, Plan | None]:
    found = {name: plan and plan(case.block_rows) for name, plan in PLANS.items()}
    for least in BUDGETS:
        plan = _automatic(case, least)
        found[f"auto, room for {least}: {plan.gradient}"] = plan if plan.passes else None
    return found


def _allowed(case: ChainCase) -> Constraints:
    parts = (case.transition, *_ends(case))
    return Constraints(*(part > -np.inf for part in parts))


def _ends(case: ChainCase) -> list[np.ndarray]:
    return [np.zeros(case.n_labels) if x is None else x for x in (case.start, case.end)]


def _made(case: ChainCase, X: Sequences, y: np.ndarray, weights, plan: Plan | None):
    # The objective, by a plan.
    L, allowed = case.n_labels, _allowed(case)
    if plan is None:
        scores = ScoreMap(X, L, full_support(L), allowed, X.dtype)
        codes = y.astype(np.int32)
        return LogLikelihood(scores, codes, X.offsets, weights, 0.0, Threads(1))
    labels = label_blocks(np.split(y, X.offsets[1:-1]), len(X))
    rows, classes = blocks_of(X), np.arange(L)  # seen or not
    data = LongData.of_blocks(rows, labels, X.lengths, classes, weights, plan)
    scores = ScoreMap(data.summary.layout(), L, full_support(L), allowed, X.dtype)
    return LongLogLikelihood(scores, data, 0.0)


def _sharded(case: ChainCase, X: Sequences, y: np.ndarray, weights) -> ShardedLogLikelihood:
    # Some shards are kept, or all, or none.
    L, cuts = case.n_labels, np.linspace(0, len(X), N_SHARDS + 1).astype(int)
    layout, counts = Sequences(X.rows[:0], [0]), np.ones(len(y), int) if X.is_sparse else None
    summary = SimpleNamespace(
        counts=counts, largest=None, logs=None, n_rows=len(y), longest=case.longest,
        classes=np.arange(L),
    )  # fmt: skip
    scores = ScoreMap(layout, L, full_support(L), _allowed(case), X.dtype, summary=summary)

    def load(k: int) -> LabelledRows:
        first, stop = cuts[k : k + 2]
        codes = y[X.offsets[first] : X.offsets[stop]]
        return LabelledRows(X[first:stop], None, np.arange(L), codes, weights[first:stop])

    filled = [k for k in range(N_SHARDS) if load(k).X.n_rows]
    shards = SimpleNamespace(load=load, named=nullcontext, filled=filled, summary=summary)
    room = (0, X.rows[:1].shape[1] * 100, np.inf)[case.seed % 3]
    return ShardedLogLikelihood(scores, shards, room, 0.0, Threads(1))


def _evaluate(case: ChainCase, objective):
    # (value, gradient) at the weights that make the scores of the case.
    scores = objective.scores
    w = scores.pack(Weights(case.emission, case.transition, *_ends(case)))
    gradient = np.zeros_like(w)
    value = objective.value_and_gradient(w, gradient)
    return value, _unpacked(scores, gradient)


def _unpacked(scores: ScoreMap, gradient: np.ndarray) -> list[np.ndarray]:
    return [np.where(part > -np.inf, part, 0) for part in scores.unpack(gradient)]


# ---------------------------------------------------------------------- margin


def hinge(case: ChainCase) -> Iterator[tuple]:
    """The structured hinge loss, and the wrong path that its subgradient is made of."""
    if case.impossible or case.recipe.holes or len(case.emission) == 0:
        return
    L, cost = case.n_labels, 1 - np.eye(case.n_labels)
    y = np.concatenate([_truth(case, chain) for chain in case.chains])
    C, slack = case.rng.random(len(case.chains)) + 0.5, ("l1", "l2")[case.seed % 2]
    rows = (sparse.eye, np.eye)[case.seed // 2 % 2](len(y))
    rows = linear_rows(sparse.csr_matrix(rows) if sparse.issparse(rows) else rows)
    objective = StructuredHinge(
        rows,
        case.offsets,
        y.astype(np.int32),
        C,
        Margin(PathLoss(cost, 0.0), slack, _allowed(case)),
    )
    _set_weights(case, objective)
    tolerance, total = 4 * case.slack_in(float), np.longdouble(0)
    for s in objective.blocks:
        a, b = case.offsets[s : s + 2]
        other = Chain(case.emission[a:b] + cost[y[a:b]], case.transition, case.start, case.end)
        wanted = _best_wrong(other, y[a:b]) - case.chains[s].score(y[a:b])
        path, found = objective.most_violated(s)
        yield "violation", found, wanted, tolerance
        if wanted > -np.inf:
            yield "a wrong path", bool((path != y[a:b]).any()), True, 0
            of_path = other.score(path) - case.chains[s].score(y[a:b])
            yield "violation of the path", of_path, wanted, tolerance
        total += C[s] * max(wanted, 0) ** (1 if slack == "l1" else 2)
    half = _half_square(case)
    size = float(half + total) * np.finfo(float).eps * 8 * np.sqrt(len(y) * L)
    slack_of_sum = C.sum() * tolerance * (1 if slack == "l1" else 2 * float(total) ** 0.5 + 1)
    yield (
        f"objective, slack {slack}",
        objective.certificate().primal,
        half + total,
        (size + 2 * slack_of_sum),
    )


def _truth(case: ChainCase, chain: Chain) -> np.ndarray:
    # The best path, or an allowed one at random.
    if not chain.T or case.rng.random() < 0.5:
        return chain.best
    flat = np.where(chain.psi > -np.inf, case.rng.normal(size=chain.psi.shape), -np.inf)
    return Chain(flat, np.where(chain.transition > -np.inf, 0, -np.inf)).best


def _best_wrong(chain: Chain, truth: np.ndarray):
    # Score of the best path that is not the truth; -inf if there is none.
    if (chain.best != truth).any():
        return chain.score(chain.best)
    scores = chain.best_scores(2)
    return scores[1] if len(scores) > 1 else -np.inf


def _set_weights(case: ChainCase, objective: StructuredHinge) -> None:
    L, held = case.n_labels, objective.kernel.arrays
    held["W"][:, :L] = case.emission[objective.source.order]
    held["score"][:L, :L] = case.transition
    held["score_t"][...] = held["score"].T
    for name, scores, mask in zip(("start", "end"), _ends(case), _allowed(case)[1:]):
        held[name][:L] = np.where(mask, scores, -np.inf)


def _half_square(case: ChainCase):
    parts = (case.emission, case.transition, *_ends(case))
    return sum(np.square(x[x > -np.inf].astype(np.longdouble)).sum() for x in parts) / 2


# ---------------------------------------------------------------------- z-score


def zscore(case: ChainCase) -> Iterator[tuple]:
    """Mean and covariance of scores over all allowed paths, and the features' observed excess."""
    if case.impossible or case.recipe.holes or not 0 < len(case.emission) * case.n_labels**2 < 1e5:
        return
    L, allowed = case.n_labels, _allowed(case)
    y = np.concatenate([chain.best for chain in case.chains]).astype(np.int32)
    weights = case.rng.random(len(case.chains)) + 0.5
    rows = (sparse.eye(len(y), format="csr"), np.eye(len(y)))[case.seed % 2]
    moments = AllowedMoments(Sample(rows, case.offsets, y, weights, L), 0.0, allowed)
    emission = case.emission.astype(float)
    # The scores of the case, and others.
    transition = np.where(allowed.transition, case.transition, 0).astype(float)
    two = [(emission, transition), (case.rng.normal(size=emission.shape), np.zeros((L, L)))]
    two[1] = (two[1][0], np.where(allowed.transition, case.rng.normal(size=(L, L)), 0))
    found = moments.paths.score_moments(*two[0])
    v = [np.concatenate([e.ravel(), t.ravel()]) for e, t in two]
    excess, covariance = np.zeros(2, np.longdouble), np.zeros((2, 2), np.longdouble)
    size, uniform = case.size + case.longest, [np.where(mask, 0, -np.inf) for mask in allowed]
    tolerance = 16 * np.finfo(float).eps * np.sqrt(case.longest) * case.longest * size
    for s, weight in enumerate(weights):
        rows_of = slice(*case.offsets[s : s + 2])
        slow = Chain(np.zeros((rows_of.stop - rows_of.start, L)), *uniform)
        row, pair = (np.stack(parts, axis=-1) for parts in zip(*two))
        mean, around = slow.moments(row[rows_of], pair)
        path = y[rows_of]
        seen = row[rows_of][np.arange(len(path)), path].sum(axis=0)
        seen = seen + pair[path[:-1], path[1:]].sum(axis=0)
        excess, covariance = excess + weight * (seen - mean), covariance + weight * around
        yield "mean", found.mean[s], mean[0], tolerance
        yield "variance", found.variance[s], around[0, 0], tolerance * size
    several = 4 * case.slack_of(len(weights), tolerance)
    for k, name in enumerate(("scores", "other scores")):
        yield f"observed less expected, {name}", v[k] @ moments.b, excess[k], several
    products = moments.hessian_product(np.stack(v, axis=1))
    got = np.stack(v) @ products
    yield "covariance", got, covariance, several * size


# ---------------------------------------------------------------------- online

# Where beliefs are equal up to rounding, "step" and "window" are decided by rounding.
RULES = [
    {"strategy": "closure"},
    {"strategy": "closure", "max_latency": 2, "belief": "viterbi", "restart": "always"},
    {"strategy": "viterbi"},
    {"strategy": "viterbi", "max_latency": 0, "belief": "viterbi", "restart": "always"},
    {"strategy": "viterbi", "max_latency": 3, "belief": "viterbi"},
    {"strategy": "chunk", "window_size": 3, "belief": "viterbi", "restart": "always"},
    {"strategy": "chunk", "window_size": 4, "belief": "viterbi"},
]
BELIEF_RULES = [
    {"strategy": "closure", "max_latency": 2},
    {"strategy": "viterbi", "max_latency": 1, "restart": "always"},
    {"strategy": "chunk", "window_size": 3},
    {"strategy": "step", "latency_cost": 0.05, "belief": "viterbi", "restart": "always"},
    {"strategy": "step", "latency_cost": 0.2},
    {"strategy": "step", "latency_cost": 0.03, "uncertainty": "entropy", "max_latency": 4},
    {"strategy": "step", "latency_cost": 0.013, "uncertainty": "ambiguity", "belief": "viterbi"},
    {"strategy": "window", "latency_cost": 0.05, "restart": "always"},
    {"strategy": "window", "latency_cost": 0.2},
]
ROWS_ONLINE = 40  # the definition computes everything again at each row


def online(case: ChainCase) -> Iterator[tuple]:
    """Labels and times, and that the future does not change what has left."""
    if case.impossible or case.longest > ROWS_ONLINE:
        return
    for rule in rules(case):
        name = ", ".join(map(str, rule.values()))
        wanted = [defined(case, a, b, rule) for a, b in zip(case.offsets[:-1], case.offsets[1:])]
        got = _decoded(case, case.emission, case.offsets, rule)
        if None in wanted or got is None:
            yield f"dead end, {name}", got is None, None in wanted, 0
            continue
        labels, times = (np.concatenate(x) if x else x for x in zip(*wanted))
        yield f"labels, {name}", got.labels, labels, 0
        yield f"times, {name}", got.times, times, 0
        yield f"confidence, {name}", *_confidence(case, got), case.slack
        yield from _causal(case, rule, got, name)


def _confidence(case: ChainCase, got: OnlineDecoding) -> tuple:
    # p(label | rows that had arrived). At the newest row of all the end may have come, or not yet.
    wanted = []
    for a, b in zip(case.offsets[:-1], case.offsets[1:]):
        emission, times = case.emission[a:b], got.times[a:b]
        log_alpha = Chain(emission, case.transition, case.start).log_alpha
        for now in np.unique(times):
            left = np.flatnonzero(times == now)
            # The filter at the oldest of these rows stands for all rows before.
            known = np.concatenate([log_alpha[left[:1]], emission[left[0] + 1 : now + 1]])
            ends = (None, case.end) if a + now + 1 == b else (None,)
            beliefs = [Chain(known, case.transition, None, end) for end in ends]
            for row in left:
                at = row - left[0], got.labels[a + row]
                p = [x.marginals[at] for x in beliefs if x.log_z > -np.inf]
                wanted.append(min(p, key=lambda q: abs(q - got.confidence[a + row])))
    return got.confidence, wanted


def rules(case: ChainCase, n: int = 3) -> list[dict]:
    table = RULES if case.recipe.exact else RULES + BELIEF_RULES
    return [table[i] for i in case.rng.choice(len(table), n, replace=False)]


def _decoded(case: ChainCase, emission, offsets, rule: dict) -> OnlineDecoding | None:
    # Labels, times, confidence; or None where no label is allowed any more.
    _, ends = case.arguments
    try:
        paths = decode_online(emission, case.transition, offsets, **ends, **rule)
    except ValueError as error:
        if "No label is allowed" in str(error):
            return None
        raise
    row = np.arange(len(emission)) - np.repeat(offsets[:-1], np.diff(offsets))
    return OnlineDecoding(paths.labels, row + paths.latency, paths.confidence)


def defined(case: ChainCase, a: int, b: int, rule: dict):
    decoder = Online(case.transition, case.start, case.end, **rule)
    try:
        for row in case.emission[a:b]:
            decoder.push(row)
        decoder.finish()
    except ValueError:  # no label is allowed any more
        return None
    return np.array(decoder.labels, dtype=int), np.array(decoder.times, dtype=int)


def _causal(case: ChainCase, rule: dict, got: OnlineDecoding, name: str) -> Iterator[tuple]:
    # The longest sequence with another future, longer or shorter, from some row on.
    a, b = case.offsets[np.diff(case.offsets).argmax() :][:2]
    if b - a < 2:
        return
    now = int(case.rng.integers(b - a - 1))
    pool = -np.nan_to_num(case.emission[a:b], neginf=0)
    future = case.rng.choice(pool, case.rng.integers(2 * (b - a)))
    emission = np.concatenate([case.emission[a : a + now + 1], future])
    other = _decoded(case, emission, np.array([0, len(emission)]), rule)
    if other is None:
        return
    left = np.flatnonzero(got.times[a:b] <= now)
    for field, one, two in zip(OnlineDecoding._fields, got, other):
        yield f"{field} before another future, {name}", two[left], one[a:b][left], 0


QUESTIONS = {
    "forward_backward": sums,
    "viterbi": best_path,
    "nbest": n_best,
    "sample": law_of_samples,
    "expected_features": features,
    "entropy": entropies,
    "gradients": gradients,
    "hinge": hinge,
    "z-score": zscore,
    "decode_online": online,
}
# Those of long chains: what is n times the rows or more is left out.
OF_LONG = ("forward_backward", "viterbi", "entropy", "gradients", "hinge", "z-score")
LONG_QUESTIONS = {name: QUESTIONS[name] for name in OF_LONG}
