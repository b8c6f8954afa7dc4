"""Trade-off between the latency of online decoding and its disagreement with Viterbi."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sklseq._lib.checks import check_number
from sklseq.data.types import SequencesLike
from sklseq.display._common import new_axes
from sklseq.estimators.online.online_decoder import (
    LatencyReport,
    OnlineDecoder,
    potentials_and_delay,
    report_of,
)
from sklseq.estimators.online.tuning import HeldOut, LatencyTuning
from sklseq.inference.chain.online_rules import OnlineRule

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LATENCY_COSTS = (1.0, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
# The parameter of each curve and its values; the strategies have the names of the paper.
SWEEPS = {
    "chunk": ("window_size", (2, 3, 4, 5, 7, 10, 15, 20)),
    "lag": ("lag", (1, 2, 3, 4, 5, 7, 10)),
    "step": ("latency_cost", LATENCY_COSTS),
    "window": ("latency_cost", LATENCY_COSTS),
    "closure": (None, (None,)),
}
STYLES = {
    "chunk": ("fixed windows", "#9a9a9a", "s"),
    "lag": ("fixed lag", "#b8860b", "D"),
    "step": ("online step", "#0b6fa4", "o"),
    "window": ("online variable window", "#b3312c", "^"),
    "closure": ("lossless", "#2e7d32", "*"),
}


class TradeOff(NamedTuple):
    """Reports of one strategy for several values of its parameter.

    Attributes
    ----------
    strategy : str
    values : tuple
        Values of the parameter of this strategy, see ``LatencyAccuracyDisplay.from_estimator``.
    reports : list of LatencyReport
        One for each value.
    """

    strategy: str
    values: tuple
    reports: list[LatencyReport]

    @property
    def latency(self) -> np.ndarray:
        return np.array([report.mean for report in self.reports])

    @property
    def disagreement(self) -> np.ndarray:
        return np.array([report.disagreement for report in self.reports])


class LatencyAccuracyDisplay:
    """Trade-off between the latency of online decoding and its disagreement with Viterbi.

    Use :meth:`from_estimator`; :meth:`plot` draws disagreement with Viterbi's algorithm against
    mean latency, :meth:`plot_look_ahead` the distribution of the latency: Figures 5 and 6 of
    Narasimhan, Viola and Shilman (2006).

    Parameters
    ----------
    curves : list of TradeOff
    look_ahead : TradeOff
        One report, for the rule whose latency distribution is shown.

    Attributes
    ----------
    curves, look_ahead
        As given.
    ax_ : matplotlib Axes
        Axes of the last plot.
    figure_ : matplotlib Figure

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklseq import CRFTagger
    >>> from sklseq.datasets import make_contacts
    >>> from sklseq.display import LatencyAccuracyDisplay
    >>> from sklseq.features import TemplateFeatures
    >>> X, y = make_contacts(12, random_state=0)
    >>> model = make_pipeline(TemplateFeatures(["w[0]"], bos_eos=False), CRFTagger(l2=0.1))
    >>> display = LatencyAccuracyDisplay.from_estimator(model.fit(X, y), X, strategies=["step"])
    >>> bool((display.curves[0].latency >= 0).all())
    True
    >>> figure, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
    >>> display = display.plot(ax)
    """

    def __init__(self, curves: list[TradeOff], look_ahead: TradeOff):
        self.curves = curves
        self.look_ahead = look_ahead

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: SequencesLike,
        *,
        strategies: Sequence[str] = tuple(SWEEPS),
        sweep: dict | None = None,
        goal: float = 0.001,
    ) -> LatencyAccuracyDisplay:
        """Decode with each strategy and each value of its parameter, without a plot.

        Parameters
        ----------
        estimator : OnlineDecoder, tagger or pipeline
            Fitted. ``uncertainty``, ``belief`` and ``restart`` of a decoder are used for all rules.
        X : list of sequences
        strategies : list of {"chunk", "lag", "step", "window", "closure"}
        sweep : dict, optional
            Values to try for each strategy, instead of the default ones: window sizes for "chunk",
            lags for "lag", latency costs for the others.
        goal : float, default=0.001
            Largest disagreement of the rule that :meth:`plot_look_ahead` shows: the one of lowest
            mean latency within it, among the "step" rules or else those of the last strategy.

        Returns
        -------
        LatencyAccuracyDisplay
        """
        check_number("goal", goal)
        decoder = _as_decoder(estimator)
        unknown = [name for name in strategies if name not in SWEEPS]
        if unknown or not len(strategies):
            raise ValueError(
                f"strategies must be some of {tuple(SWEEPS)}; got {list(strategies)!r}."
            )
        data = HeldOut(*potentials_and_delay(decoder, X))
        curves = []
        for name in strategies:
            parameter, values = SWEEPS[name]
            values = tuple((sweep or {}).get(name, values))
            rules = [_rule(decoder, name, parameter, value) for value in values]
            reports = [report_of(*data.decode(rule)) for rule in rules]
            curves.append(TradeOff(name, values, reports))
        return cls(curves, _reaching(curves, goal))

    @classmethod
    def from_tuning(cls, tuning: LatencyTuning) -> LatencyAccuracyDisplay:
        """Reports for the costs that :func:`sklseq.online.tune_latency` tried, without a plot.

        Parameters
        ----------
        tuning : LatencyTuning

        Returns
        -------
        LatencyAccuracyDisplay
            One curve with a report for each cost; :meth:`plot_look_ahead` shows the chosen cost.

        Examples
        --------
        >>> from sklseq import CRFTagger, OnlineDecoder
        >>> from sklseq.display import LatencyAccuracyDisplay
        >>> from sklseq.online import tune_latency
        >>> X, y = [[["a"], ["b"], ["a"]], [["b"], ["a"]]] * 2, [["x", "y", "x"], ["y", "x"]] * 2
        >>> decoder = OnlineDecoder(CRFTagger())
        >>> tuning = tune_latency(decoder, X, y, target_disagreement=0, cv=2)
        >>> LatencyAccuracyDisplay.from_tuning(tuning).curves[0].strategy
        'step'
        """
        name = tuning.decoder.strategy
        curve = TradeOff(name, tuple(tuning.curve["latency_cost"].tolist()), tuning.reports)
        return cls([curve], TradeOff(name, (tuning.latency_cost,), [tuning.report]))

    def plot(self, ax: Axes | None = None) -> LatencyAccuracyDisplay:
        """Disagreement with Viterbi against mean latency, one curve per strategy (Figure 5).

        The axis of disagreement is linear from 0 to that of one label, and logarithmic above.

        Parameters
        ----------
        ax : matplotlib Axes, optional

        Returns
        -------
        LatencyAccuracyDisplay
            The display itself.
        """
        ax = new_axes(self, ax)
        for curve in self.curves:
            label, color, marker = STYLES[curve.strategy]
            errors = 100 * curve.disagreement
            if curve.strategy == "closure":
                ax.axvline(curve.latency[0], color=color, linestyle=":", label=label)
                continue
            ax.plot(curve.latency, errors, marker=marker, color=color, label=label)
        one = 100 / max(1, *(report.n_rows for curve in self.curves for report in curve.reports))
        ax.set_yscale("symlog", linthresh=one)  # linear from 0 to one label
        ax.set_ylim(bottom=0, top=max(one, ax.get_ylim()[1]))
        ax.set(xlabel="mean latency (tokens)", ylabel="disagreement with Viterbi (%)")
        ax.grid(color="0.9", which="both", linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1.0))
        return self

    def plot_look_ahead(self, ax: Axes | None = None) -> LatencyAccuracyDisplay:
        """Fraction of the labels at each latency (Figure 6).

        Parameters
        ----------
        ax : matplotlib Axes, optional

        Returns
        -------
        LatencyAccuracyDisplay
            The display itself.
        """
        ax = new_axes(self, ax)
        (report,), (value,) = self.look_ahead.reports, self.look_ahead.values
        percent = 100 * report.histogram / report.n_rows
        label, color, _ = STYLES[self.look_ahead.strategy]
        percent = percent[:16]
        ax.bar(np.arange(len(percent)), percent, color=color, width=0.8)
        parameter = SWEEPS[self.look_ahead.strategy][0]
        setting = f" ({parameter} {value:.3g})" if parameter else ""
        ax.set_title(
            f"{label}{setting}: {100 * report.disagreement:.3g} % disagreement\n"
            f"mean latency {report.mean:.2f} tokens, above 10: {100 * report.share_above_10:.3g} %",
            fontsize=10,
        )
        ax.set(xlabel="latency (tokens)", ylabel="fraction of the labels (%)")
        ax.spines[["top", "right"]].set_visible(False)
        return self


def _as_decoder(estimator: Any) -> OnlineDecoder:
    if isinstance(estimator, OnlineDecoder):
        check_is_fitted(estimator)
        return estimator
    decoder = OnlineDecoder()
    decoder.estimator_ = estimator
    return decoder


def _rule(decoder: OnlineDecoder, name: str, parameter: str | None, value: Any) -> OnlineRule:
    rule = {key: getattr(decoder, key) for key in ("uncertainty", "belief", "restart", "early")}
    if name != "lag":
        rule["strategy"] = name
    if parameter is not None:
        rule[parameter] = value
    return OnlineRule.checked(**rule)


def _reaching(curves: list[TradeOff], goal: float) -> TradeOff:
    names = [curve.strategy for curve in curves]
    curve = curves[names.index("step") if "step" in names else -1]
    reached = [k for k, report in enumerate(curve.reports) if report.disagreement <= goal]
    k = min(reached, key=lambda k: curve.reports[k].mean) if reached else -1
    return TradeOff(curve.strategy, (curve.values[k],), [curve.reports[k]])
