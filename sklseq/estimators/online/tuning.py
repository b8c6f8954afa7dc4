"""Search for the ``latency_cost`` that reaches a target; each fold is trained once."""

from collections.abc import Callable, Iterable
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import BaseCrossValidator
from sklearn.pipeline import make_pipeline

from sklseq._lib.checks import check_number
from sklseq._lib.threads import Threads
from sklseq.data.labels import check_counts
from sklseq.data.types import ArrayLike, LabelsLike, SequencesLike
from sklseq.estimators.folds import as_list, read_folds, read_number, take
from sklseq.estimators.online.online_decoder import (
    LatencyReport,
    OnlineDecoder,
    potentials_and_delay,
    report_of,
    viterbi_of,
)
from sklseq.estimators.online.pipelines import decodes_segments, tagger_of
from sklseq.estimators.online.row_potentials import chain_of, in_tokens
from sklseq.inference.chain.online_rules import OnlineRule, decode_block
from sklseq.objectives.scores.scored_rows import Potentials

# Costs between 0 and the first change little. Above the last, nearly all labels are immediate.
COSTS = (0.0, *np.geomspace(1e-4, 10, 16).tolist())
MOST_HALVINGS = 12
CLOSE = 0.005  # relative distance to the target at which the search ends


class LatencyTuning(NamedTuple):
    """Result of :func:`tune_latency`.

    Attributes
    ----------
    decoder : OnlineDecoder
        The decoder with the cost that was found; fitted if the given decoder was fitted.
    latency_cost : float
        The cost that was found.
    report : LatencyReport
        Latency and disagreement with it, on the sequences that the models had not seen.
    curve : dict of ndarray
        Columns "latency_cost" (increasing), "mean_latency", "disagreement" and, with ``scorer``,
        "score", for each cost tried: ``pandas.DataFrame(curve)``.
    reports : list of LatencyReport
        One for each cost of ``curve``.
    """

    decoder: OnlineDecoder
    latency_cost: float
    report: LatencyReport
    curve: dict[str, np.ndarray]
    reports: list[LatencyReport]


class HeldOut:
    """Sequences with the potentials of a model; decodes them with any rule.

    Parameters
    ----------
    potentials : Potentials
    delay : int
        Tokens that the features look ahead.
    """

    def __init__(self, potentials: Potentials, delay: int):
        self.potentials, self.delay = potentials, delay
        self.chain, self.best = chain_of(potentials), viterbi_of(potentials)

    def decode(self, rule: OnlineRule) -> tuple[np.ndarray, np.ndarray]:
        """Return the latency of each row in tokens, and whether its label is not Viterbi's."""
        offsets = self.potentials.offsets
        paths = decode_block(
            self.potentials.emission, offsets, self.chain, rule, confidence=False, held=self.delay
        )
        return in_tokens(paths.latency, self.delay, offsets), paths.labels != self.best


def tune_latency(
    decoder: OnlineDecoder,
    X: SequencesLike,
    y: LabelsLike | None,
    *,
    target_latency: float | None = None,
    target_disagreement: float | None = None,
    scorer: Callable[..., float] | None = None,
    cv: int | BaseCrossValidator | Iterable[tuple[ArrayLike, ArrayLike]] | None = None,
) -> LatencyTuning:
    """Choose ``latency_cost`` for a mean latency, a disagreement with Viterbi, or a score.

    Trains one model for each fold and computes the potentials of the sequences that it has not
    seen. All costs are tried on these potentials. Between the two costs around the target, the
    interval is halved until the result is within 0.5 % of the target, or for 12 times. Of
    costs that are as close to the target, the one that is better in the other measure is chosen.

    Parameters
    ----------
    decoder : OnlineDecoder
        With strategy "step" or "window"; its other parameters are kept. If its estimator is a
        ``FrozenEstimator``, nothing is trained, and X must be data that the model has not seen.
    X : list of sequences
    y : list of label sequences
        May be None if nothing is trained and there is no ``scorer``.
    target_latency : float, optional
        Mean latency in tokens, including those that the features look ahead.
    target_disagreement : float, optional
        Fraction of the labels that differ from those of Viterbi's algorithm.
    scorer : callable, optional
        Called as ``scorer(decoder, X, y)`` for each fold; the cost with the largest mean is chosen,
        and of several the largest cost. See :func:`make_latency_scorer`.
    cv : int, splitter or iterable, default=None
        As in ``GridSearchCV``; None is ``KFold(5)``, or a fold for each sequence if there are
        fewer.

    Returns
    -------
    LatencyTuning
        Named tuple ``(decoder, latency_cost, report, curve, reports)``;
        ``LatencyAccuracyDisplay.from_tuning`` draws it.

    Raises
    ------
    ValueError
        If not exactly one of the targets and ``scorer`` is given, no cost reaches the target, or
        the rule of the decoder has no ``latency_cost``.

    See Also
    --------
    sklseq.display.LatencyAccuracyDisplay : The curve, drawn.

    Notes
    -----
    Cost: one training for each fold, and about 20 decodings of X. A disagreement d of n labels is
    known with a relative error of about 1/√(d·n): a small target needs much data. A model
    trained on all sequences has more data than the models of the folds and is more certain, so its
    latency is slightly lower; with few sequences, use many folds.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklseq import CRFTagger, OnlineDecoder
    >>> from sklseq.datasets import make_contacts
    >>> from sklseq.features import TemplateFeatures
    >>> from sklseq.online import tune_latency
    >>> X, y = make_contacts(20, random_state=0)
    >>> tagger = make_pipeline(TemplateFeatures(["w[0]"]), CRFTagger(l2=0.1))
    >>> tuning = tune_latency(OnlineDecoder(tagger), X, y, target_latency=3.0, cv=2)
    >>> abs(tuning.report.mean / 3.0 - 1) < 0.05
    True
    >>> decoder = tuning.decoder.fit(X, y)
    """
    _check_rule(decoder)
    targets = {"target_latency": target_latency, "target_disagreement": target_disagreement}
    name, target = _read_target({**targets, "scorer": scorer})
    folds = _held_out(decoder, X, y, cv)
    parts = [part for part, _ in folds]
    reports: dict[float, LatencyReport] = {}

    def measure(cost: float) -> float:
        reports[cost] = _report(parts, _rule(decoder, cost, parts[0].delay), decoder.n_jobs)
        return reports[cost].mean if name == "target_latency" else reports[cost].disagreement

    values = [measure(cost) for cost in COSTS]
    scores: dict[float, float] = {}
    if scorer is not None:
        scores = {cost: _score(decoder, cost, folds, scorer) for cost in COSTS}
        best = max(COSTS, key=lambda cost: (scores[cost], cost))
    else:
        found = _search(name, target, values, measure)
        best = min(found, key=lambda cost: (abs(found[cost] - target), _other(name, reports[cost])))
    costs = sorted(reports)
    curve = {
        "latency_cost": np.array(costs),
        "mean_latency": np.array([reports[cost].mean for cost in costs]),
        "disagreement": np.array([reports[cost].disagreement for cost in costs]),
    }
    if scores:
        curve["score"] = np.array([scores[cost] for cost in costs])
    tuned = copy(decoder).set_params(latency_cost=best)
    return LatencyTuning(tuned, best, reports[best], curve, [reports[cost] for cost in costs])


# ---------------------------------------------------------------------- targets


def _check_rule(decoder: Any) -> None:
    if not isinstance(decoder, OnlineDecoder):
        raise TypeError(
            f"tune_latency takes an OnlineDecoder; got {type(decoder).__name__}. Put OnlineDecoder "
            "around the tagger or its pipeline."
        )
    if decoder.strategy not in ("step", "window") or decoder.lag is not None:
        raise ValueError(
            'tune_latency chooses latency_cost, which strategies "step" and "window" have; got '
            f"strategy={decoder.strategy!r}, lag={decoder.lag}."
        )
    _rule(decoder, 0.0, 0)
    if decoder.estimator is not None and decodes_segments(tagger_of(decoder.estimator)[1]):
        raise TypeError("tune_latency needs the potentials of a tagger; got a segmenter.")


def _read_target(given: dict[str, Any]) -> tuple[str, Any]:
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        raise ValueError(
            f"tune_latency needs exactly one of {', '.join(given)}; got {names or 'none of them'}."
        )
    (name,), target = names, given[names[0]]
    if name == "scorer":
        if not callable(target):
            raise ValueError(f"scorer must be called as scorer(decoder, X, y); got {target!r}.")
    else:
        check_number(name, target)
    return name, target


def _search(
    name: str, target: float, values: list[float], measure: Callable[[float], float]
) -> dict[float, float]:
    # Values by cost, of which one is close to the target. With the cost, latency falls and
    # disagreement rises, except for single sequences, so the target lies between two neighbours.
    found = dict(zip(COSTS, values))
    above = np.array(values) >= target
    crossings = np.flatnonzero(above[1:] != above[:-1])
    if target not in values and not len(crossings):
        raise ValueError(
            f"{name}={target} cannot be reached: with latency costs from {COSTS[0]:g} to "
            f"{COSTS[-1]:g} it is from {min(values):.4g} to {max(values):.4g}. Choose a target "
            "between them, or another strategy or features."
        )
    if len(crossings):
        low, high = COSTS[crossings[0]], COSTS[crossings[0] + 1]
        for _ in range(MOST_HALVINGS):
            if min(abs(value - target) for value in found.values()) <= CLOSE * target:
                break
            middle = float(np.sqrt(max(low, high / 100) * high))
            found[middle] = measure(middle)
            same = (found[middle] >= target) == (found[low] >= target)
            low, high = (middle, high) if same else (low, middle)
    return found


def _other(name: str, report: LatencyReport) -> float:
    # What decides between costs that are as close to the target.
    return report.disagreement if name == "target_latency" else report.mean


# ---------------------------------------------------------------------- folds


def _held_out(decoder: OnlineDecoder, X: Any, y: Any, cv: Any) -> list[tuple[HeldOut, tuple]]:
    # For each fold the potentials of its test sequences, and (X, y, fitted decoder) for a scorer.
    X, y = as_list(X), y if y is None else list(y)
    frozen = isinstance(decoder.estimator, FrozenEstimator)
    if not (frozen and y is None):
        check_counts(len(X), "none" if y is None else len(y))
    if frozen:
        return [_scored(copy(decoder), X, y)]
    rows = np.array([len(labels) > 0 for labels in y], dtype=bool)
    folds = []
    for train, test in read_folds(cv, np.zeros(len(y)), rows, rows):
        part = clone(decoder).fit(take(X, train), take(y, train))
        folds.append(_scored(part, take(X, test), take(y, test)))
    return folds


def _scored(decoder: OnlineDecoder, X: Any, y: Any) -> tuple[HeldOut, tuple]:
    return HeldOut(*potentials_and_delay(decoder, X)), (X, y, decoder)


def _rule(decoder: OnlineDecoder, cost: float, delay: int) -> OnlineRule:
    rule = {name: getattr(decoder, name) for name in (*OnlineRule._fields, "lag")}
    return OnlineRule.checked(**{**rule, "latency_cost": cost}).behind(delay)


def _report(parts: list[HeldOut], rule: OnlineRule, n_jobs: int | None) -> LatencyReport:
    with Threads(n_jobs) as threads:
        decoded = threads.map(lambda part: part.decode(rule), parts)
    latency, wrong = (np.concatenate(arrays) for arrays in zip(*decoded))
    return report_of(latency, wrong)


# ---------------------------------------------------------------------- scorers


class _Known(TransformerMixin, BaseEstimator):
    # Replaces both steps of a pipeline for scorers: the transformer, which has the receptive field,
    # and the tagger, which returns the known potentials of the fold's X. The decoder of the fold
    # computes those of any other X, such as a part of it.
    def __init__(self, part: HeldOut, X: Any, decoder: OnlineDecoder):
        self.part, self.X, self.decoder, self.classes_ = part, X, decoder, decoder.classes_
        self.receptive_field = (0, part.delay)

    def transform(self, X: Any) -> Any:
        return X

    def potentials(self, X: Any) -> Potentials:
        return self.part.potentials if X is self.X else potentials_and_delay(self.decoder, X)[0]


def _score(decoder: OnlineDecoder, cost: float, folds: list, scorer: Callable[..., float]) -> float:
    scores = []
    for part, (X, y, fitted) in folds:
        known = clone(decoder).set_params(latency_cost=cost)
        known.estimator_ = make_pipeline(_Known(part, X, fitted), _Known(part, X, fitted))
        scores.append(read_number(scorer(known, X, y)))
        if not np.isfinite(scores[-1]):
            raise ValueError(
                f"scorer must return a finite number; with latency_cost={cost:g} it gave "
                f"{scores[-1]}."
            )
    return float(np.mean(scores))
