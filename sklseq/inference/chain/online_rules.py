"""Rules of online decoding, their checks, and :func:`decode_online`.

The algorithm is in ``_online.pyx``, its specification in ``tests/reference.py``.
"""

import numbers
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np

from sklseq._lib.checks import check_choice, check_number
from sklseq._lib.cpu import load_kernel
from sklseq.data.types import ArrayLike
from sklseq.inference.chain.linear_chain import Transitions, check_chain
from sklseq.inference.chain.row_transitions import TransitionLike

_online = load_kernel("sklseq.inference.kernels._online")

MOST_ROWS = sys.maxsize // 2  # limit of numbers of rows: adding a few rows must not overflow


class OnlineRule(NamedTuple):
    """Rule by which labels are emitted; see :func:`decode_online`."""

    strategy: str = "step"
    latency_cost: float = 0.01
    uncertainty: str | Callable = "error"
    belief: str = "forward"
    window_size: int | None = None
    max_latency: int | None = None
    restart: str = "conflict"
    early: bool = True
    decide: str = "map"
    label_costs: Any = None

    @classmethod
    def checked(cls, *, lag: int | None = None, **parameters: Any) -> Self:
        """Rule of checked parameters; ``lag=k`` means "viterbi" with ``max_latency=k``."""
        rule = cls(**parameters)
        rule = rule._replace(label_costs=_as_costs(rule.label_costs, rule.decide))
        rule._check()
        if lag is None:
            return rule
        _check_count("lag", lag, 0)
        if rule.max_latency is not None:
            raise ValueError(
                f"lag={lag} and max_latency={rule.max_latency} exclude each other; lag waits "
                "exactly that long, max_latency at most. Give one of them."
            )
        return rule._replace(strategy="viterbi", max_latency=lag)

    def behind(self, delay: int, name: str = "max_latency") -> Self:
        """The rule for rows that arrive ``delay`` tokens late; ``name`` is for the message."""
        if self.max_latency is None:
            return self
        if self.max_latency < delay:
            raise ValueError(
                f"{name}={self.max_latency} cannot be kept: the features look {delay} tokens "
                f"ahead. Raise {name} to at least {delay}, or use features that look less far."
            )
        return self._replace(max_latency=self.max_latency - delay)

    def cost_array(self, n_labels: int) -> np.ndarray:
        """Cost of each emitted label (column) for each right label (row).

        An empty array stands for cost 1 of each wrong label.
        """
        if self.label_costs is None:
            return np.empty((0, 0))
        costs = np.array(self.label_costs)
        if costs.shape != (n_labels, n_labels):
            raise ValueError(
                "label_costs must have one row and one column for each label, "
                f"({n_labels}, {n_labels}); got shape {costs.shape}."
            )
        return costs

    def _check(self) -> None:
        for name, allowed in (
            ("strategy", _online.STRATEGIES),
            ("belief", ("viterbi", "forward")),
            ("restart", ("always", "conflict")),
            ("decide", ("map", "marginal")),
        ):
            check_choice(name, getattr(self, name), allowed)
        measures = _online.MEASURES[:-1]
        if not callable(self.uncertainty) and self.uncertainty not in measures:
            raise ValueError(
                f"uncertainty must be one of {measures} or a function of a distribution; "
                f"got {self.uncertainty!r}."
            )
        if not isinstance(self.early, (bool, np.bool_)):
            raise ValueError(f"early must be True or False; got {self.early!r}.")
        check_number("latency_cost", self.latency_cost)
        if self.max_latency is not None:
            _check_count("max_latency", self.max_latency, 0)
        if self.window_size is not None:
            _check_count("window_size", self.window_size, 1)
        elif self.strategy == "chunk":
            raise ValueError(
                'strategy="chunk" needs window_size: the number of rows that are labelled together.'
            )


def _check_count(name: str, value: Any, least: int) -> None:
    check_number(name, value, least, whole=True)
    if value > MOST_ROWS:
        raise ValueError(
            f"{name} must be at most {MOST_ROWS}; got {value!r}. Leave {name}=None for no bound."
        )


def _as_costs(costs: Any, decide: Any) -> tuple | None:
    # Costs as nested tuples, which can be compared and stored.
    if costs is None:
        return None
    if decide == "map":
        raise ValueError('label_costs needs decide="marginal"; it is not used with decide="map".')
    try:
        array = np.array(costs, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.zeros(0)
    if array.ndim != 2 or len(array) != len(array.T) or not np.isfinite(array).all():
        raise ValueError(
            "label_costs must be a square matrix of finite numbers, one row for each right label "
            f"and one column for each emitted label; got {costs!r}."
        )
    return tuple(map(tuple, array.tolist()))


def _checked_measure(measure: Callable) -> Callable:
    # A function that raises unless `measure` returns a number; the kernel itself checks for NaN.
    def call(distribution: np.ndarray) -> float:
        answer = measure(distribution)
        number = np.asarray(answer) if isinstance(answer, (np.ndarray, np.generic)) else answer
        if isinstance(number, np.ndarray) and number.shape == () and number.dtype.kind in "biuf":
            number = number.item()
        if not isinstance(number, numbers.Real):
            raise ValueError(
                f"uncertainty must return a number; it returned {answer!r} for "
                f"{distribution.tolist()}."
            )
        return float(number)

    return call


class BeamScores(NamedTuple):
    """Transition scores of a chain in float64, in the form for beams.

    Attributes
    ----------
    score, E, E_t : ndarray of shape (width, width)
        Transition scores with padding -inf, exp(score - top), and the transpose of E.
    start, end : ndarray of shape (width,)
    n_labels : int
    top : float
        The largest transition score.
    largest : float
        The largest magnitude of emission scores for which no sum overflows.
    single : bool
        Whether sums are rounded to float32.
    by_rows : bool
        Whether transition scores may differ from row to row.
    lasting : int32 ndarray of shape (n_labels,)
        Whether each label can be followed for ever, by ``score``.
    """

    score: np.ndarray
    E: np.ndarray
    E_t: np.ndarray
    start: np.ndarray
    end: np.ndarray
    n_labels: int
    top: float
    largest: float
    single: bool
    by_rows: bool
    lasting: np.ndarray


def _beam_scores(chain: Transitions) -> BeamScores:
    score = np.asarray(chain.score, dtype=np.float64)
    top = max(float(score.max()), np.finfo(float).min)
    ends = [np.zeros(chain.width) if x is None else x for x in (chain.start, chain.end)]
    ends = [np.asarray(x, dtype=np.float64) for x in ends]
    # The sum of an emission score and the largest start, end and transition must not overflow.
    largest = 0.99 * float(np.finfo(chain.dtype).max)
    entries = [] if chain.rows is None else [chain.rows.score]
    largest -= sum(max(float(x.max()), 0) for x in (np.append(score, entries), *ends))
    E = np.exp(score - top)
    E_t = np.ascontiguousarray(E.T)
    single = chain.dtype == np.float32
    by_rows = chain.rows is not None
    L = chain.n_labels
    lasting = lasting_labels(score[:L, :L])
    return BeamScores(score, E, E_t, *ends, L, top, largest, single, by_rows, lasting)


def lasting_labels(transition: np.ndarray, endless: np.ndarray | None = None) -> np.ndarray:
    """Whether an endless path of allowed transitions begins with each label, as int32.

    ``endless``: whether a path may stay in each label for ever without a transition.
    """
    allowed, lasting = transition > -np.inf, np.ones(len(transition), dtype=bool)
    while True:
        followed = allowed[:, lasting if endless is None else lasting | endless].any(axis=1)
        if followed.all() or (followed == lasting).all():
            return followed.astype(np.intc)
        lasting = followed


def new_beam(chain: Transitions, rule: OnlineRule):
    """An empty beam over a chain's transitions."""
    if not hasattr(chain, "online"):
        chain.online = _beam_scores(chain)
    measure = _checked_measure(rule.uncertainty) if callable(rule.uncertainty) else None
    return _online.Beam(chain.online, rule, measure)


class OnlinePaths(NamedTuple):
    """Answer of :func:`decode_online`.

    Attributes
    ----------
    labels : ndarray of shape (n_rows,), int32
    latency : ndarray of shape (n_rows,), int64
        Rows of the sequence that had arrived after this one when its label became final.
    confidence : ndarray of shape (n_rows,)
        Probability that the label is right given all rows that had arrived, and ``end`` if the
        sequence had ended: its marginal over all paths of these rows with weights exp(score).
        Labels emitted before are not used as evidence. For labels emitted at the end it is the
        marginal of :func:`forward_backward`. Empty if not requested.
    """

    labels: np.ndarray
    latency: np.ndarray
    confidence: np.ndarray


def decode_online(
    emission: ArrayLike,
    transition: TransitionLike,
    offsets: ArrayLike | None = None,
    *,
    start: ArrayLike | None = None,
    end: ArrayLike | None = None,
    strategy: str = "step",
    latency_cost: float = 0.01,
    uncertainty: str | Callable[[np.ndarray], float] = "error",
    belief: str = "forward",
    window_size: int | None = None,
    max_latency: int | None = None,
    lag: int | None = None,
    restart: str = "conflict",
    early: bool = True,
    decide: str = "map",
    label_costs: ArrayLike | None = None,
) -> OnlinePaths:
    """Labels of linear chains as they are emitted while rows arrive one by one.

    Write T for the newest row and t₀ for the oldest without a label, Prev_T(t₀, b) for the label
    at t₀ on the best path that ends in b at T, and P_T(b) for the belief that b is the label at T.
    Then P̃_T(t₀, a) = Σ_b P_T(b) [Prev_T(t₀, b) = a] is the belief in label a at t₀.

    A label b survives at T if it is the best predecessor of some label at row T + 1, or if the best
    path of a sequence that ends at T ends in b. Only survivors can be on the best path of the
    sequence. A label *leaves* when it is emitted.

    A *dead end* is a label with which no endless path of allowed transitions begins: only the last
    rows of a sequence can have it. Until the end is known, a rule emits no label from which all
    surviving paths lead to dead ends: if that is the likeliest one, it waits, and if
    ``max_latency`` ends the wait, it takes the likeliest other label. So some label can always
    follow, unless scores of rows forbid it. If all survivors are dead ends, there is no such
    limit. Of :class:`RowTransitions`, the shared scores say which labels are dead ends.

    Parameters
    ----------
    emission, transition, offsets, start, end
        As in :func:`forward_backward`.
    strategy : {"step", "window", "closure", "chunk", "viterbi"}, default="step"
        - "step": label t₀ leaves when M_T(t₀) ≤ ``latency_cost`` · (T + 1 - t₀), where M is the
          uncertainty of P̃_T(t₀, ·).
        - "window": all labels t₀ to T leave together, when the expected number of wrong ones is
          at most ``latency_cost`` · (T + 1 - t₀). Labels on which all survivors agree leave before
          that is computed; t₀ is then the oldest row that remains.
        - "closure": labels leave when all survivors agree on them, so they are those of Viterbi.
        - "chunk": ``window_size`` labels leave together, on the path of the likeliest label of the
          newest row.
        - "viterbi": all labels leave at the end.

        With "step" and "window", labels on which all survivors agree leave as well.
    latency_cost : float, default=0.01
        λ: the uncertainty that is accepted for each row of waiting. 0 without ``max_latency`` gives
        the labels of :func:`viterbi`.
    uncertainty : {"error", "entropy", "ambiguity"} or callable, default="error"
        M of "step": 1 - max P̃; the entropy, in nats; 1 while survivors disagree; or a function of
        the array P̃, of shape (n_labels,), that returns a number.
    belief : {"forward", "viterbi"}, default="forward"
        P_T(b), 0 for labels that do not survive: proportional to the sum of the weights exp(score)
        of all paths that end in b (the forward filter), or to the weight of the best one. With
        "viterbi" and ``early`` it is the belief that b precedes row T + 1 if all labels of that
        row have equal scores.
    window_size : int, optional
        Number of labels of "chunk".
    max_latency : int, optional
        The largest number of rows that a label waits for, with all strategies. A label that reaches
        it is argmax P̃; with "window" all pending labels leave, on the path with the fewest expected
        errors. With ``belief="viterbi"`` it is, except with "step", the label on the best path
        among those that end in survivors at T. A better path may end at T in a label that does not
        survive, if ``early``: no label of row T + 1 has it as best predecessor.
    lag : int, optional
        Fixed lag: each label leaves exactly ``lag`` rows later. Short for
        ``strategy="viterbi", max_latency=lag``.
    restart : {"conflict", "always"}, default="conflict"
        Treatment of paths that contradict a label which left although survivors disagreed.
        "conflict" keeps them until a label would leave that is forbidden after the emitted ones: a
        wrong label does not influence the next ones. "always" drops them, as in the paper's Figure
        4, from best paths and from the forward filter: later labels fit the emitted ones, which
        keeps spans whole at latencies near 0, but a state that lasts is never left if single rows
        say little about it. A label on which all survivors agree drops nothing, with ``lag`` too.
    early : bool, default=True
        Whether "step", "window" and "closure" use at row T what is known about row T + 1. False:
        every label that is allowed at T survives, P_T(b) is that of row T, and the price of waiting
        is ``latency_cost`` · (T - t₀); with ``belief="viterbi", restart="always"`` these are the
        rules of the paper. The labels of "closure" are the same, but leave about one row later.
        Transition scores that differ from row to row always have these rules: those of row T + 1
        are unknown at T.
    decide : {"map", "marginal"}, default="map"
        The label that leaves. "map": the label of a path, as above. "marginal": the label of least
        expected cost under the marginal p(y_t | rows up to T), which with a lag is the fixed-lag
        smoothing distribution; the strategy then decides only when it leaves, and ``restart`` has
        no effect. Before the end it is not a dead end, unless all labels that are possible are.
    label_costs : array-like of shape (n_labels, n_labels), optional
        For "marginal": cost of each emitted label (column) for each right label (row). Default: 1
        for each wrong label, which gives the label of the largest marginal.

    Returns
    -------
    OnlinePaths
        Named tuple ``(labels, latency, confidence)``. Emitted labels never change. They form an
        allowed path unless ``decide="marginal"``, or unless ``end`` forbids labels that left before
        the end was known.

    Raises
    ------
    ValueError
        If a parameter or a score is wrong, or no label is allowed after those that were emitted.

    Notes
    -----
    Cost O(n_labels²) a row, and O(n_labels²) for each row that is pending when labels leave: the
    confidence needs a backward recursion over them, and a label on which survivors disagree a
    forward one. Memory O(n_labels) a pending row. With transition scores that differ from row to
    row it is O(n_labels²), and the confidence needs O(n_labels²) exponentials a row.

    ``early`` is not in the paper; the manual proves that it changes no label of "closure". It needs
    no additional recursion, because the predecessors are computed for the next row anyway.

    "step" with the paper's rules (``early``) differs from Figure 4 in three points: labels on which
    all survivors agree leave at once; at the end of the input the pending labels are those of the
    best path, not the likeliest ones row by row (otherwise ``latency_cost=0`` would not be
    Viterbi's algorithm); and a label also leaves if its uncertainty equals the price of waiting
    (≤, in the figure <). The paper's fixed windows are decoded independently; those of "chunk"
    continue what came before them.

    References
    ----------
    M. Narasimhan, P. Viola, M. Shilman (2006), "Online decoding of Markov models under latency
    constraints", ICML, §3.1-3.3.

    Examples
    --------
    >>> import numpy as np
    >>> from sklseq.inference import decode_online
    >>> emission = np.array([[3.0, 0.0], [0.0, 0.5], [0.0, 9.0], [0.0, 9.0]])
    >>> paths = decode_online(emission, 2 * np.eye(2), latency_cost=0.1)
    >>> paths.labels, paths.latency
    (array([0, 1, 1, 1], dtype=int32), array([0, 1, 0, 0]))
    """
    rule = OnlineRule.checked(
        strategy=strategy, latency_cost=latency_cost, uncertainty=uncertainty, belief=belief,
        window_size=window_size, max_latency=max_latency, lag=lag, restart=restart, early=early,
        decide=decide, label_costs=label_costs,
    )  # fmt: skip
    emission, chain, offsets = check_chain(emission, transition, offsets, start, end, online=True)
    return decode_block(emission, offsets, chain, rule)


def decode_block(
    emission: np.ndarray,
    offsets: np.ndarray,
    chain: Transitions,
    rule: OnlineRule,
    first: int = 0,
    confidence: bool = True,
    shares: np.ndarray | None = None,
    held: int = 0,
) -> OnlinePaths:
    """Decode checked scores; ``first`` is the number of the first sequence, for messages.

    ``shares``: array of shape (n_rows, n_labels) for the marginals of each row when its label left.
    ``held``: number of last rows of each sequence that become known only with its end.
    """
    n, beam = len(emission), new_beam(chain, rule)
    if shares is not None and n:
        beam.share(shares, 0)
    paths = OnlinePaths(
        np.empty(n, np.intc), np.empty(n, np.int64), np.empty(n if confidence else 0)
    )
    rows = chain.rows
    if rows is not None:
        rows = rows.for_kernels(rows.score.astype(np.float64), chain.width)
    dead = _online.decode(beam, emission, offsets, *paths, held, rows)
    if dead is not None:
        s, t = dead
        where = f"of sequence {s + first}"
        if t == offsets[s + 1] - offsets[s]:
            raise no_path(f"row {t - 1} {where}", at_end=True)
        raise refused(beam, emission[offsets[s] + t], f"row {t} {where}")
    return paths


def push_scores(
    beam: Any, emission: np.ndarray, rows: tuple | None, *, held: bool = False, where: str = "",
    labels: Any = None,
) -> None:  # fmt: skip
    """Push rows of one sequence to a beam, all or none, as ``_online.push_rows``.

    ``where`` follows the number of a row in errors; ``labels``: see :func:`refused`.
    """
    t = _online.push_rows(beam, emission, held, rows)
    if t >= 0:
        raise refused(beam, emission[t], f"row {beam.n_rows + t}{where}", labels)


def refused(beam: Any, scores: np.ndarray, place: str, labels: Any = None) -> ValueError:
    """Error for a row with a score that is not in the range of a beam, or without a path.

    ``labels``: of the scores, to be named in the error; by default their numbers.
    """
    names = range(len(scores)) if labels is None else np.asarray(labels).tolist()
    for label, score in zip(names, scores.tolist()):
        if not beam.fits(score):
            return ValueError(beam.unfit(score, label, place))
    return no_path(place)


def no_path(where: str, at_end: bool = False) -> ValueError:
    """Error for a row at which all labels are forbidden."""
    if at_end:
        where = where.replace("row", "the end, after row", 1)
    elif re.match(r"row 0\b", where):
        return ValueError(
            f"No label is allowed at {where}: each label has a score of -inf in start or in that "
            "row. Allow one of them."
        )
    return ValueError(
        f"No label is allowed at {where}, after those before it: every path contains a score of "
        "-inf. Allow more transitions, or wait longer (a lower latency_cost, a larger max_latency)."
    )
