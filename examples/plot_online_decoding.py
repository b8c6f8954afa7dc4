"""
Labels while the text arrives
=============================

A tagger labels a sequence only after its end. :class:`sklseq.OnlineDecoder` emits each label as
soon as it is certain enough. This page repeats the experiment of Narasimhan, Viola and Shilman
(2006), which measures accuracy against latency.

The task is to find the fields of e-mails, if ``SKLSEQ_DATA`` names a folder that contains
``enron-email-fields/``, and otherwise contact details in generated documents. At the end, a text is
labelled while it arrives. To try your own text, type it or pipe it in::

    python examples/plot_online_decoding.py --live
    python examples/plot_online_decoding.py --live < mail.txt
"""

# %%
# Data: lower-cased words, their shapes, and whether a word begins a line.
import os
import re
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibrationDisplay
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, OnlineDecoder
from sklseq.datasets import make_contacts, read_conll
from sklseq.display import LatencyAccuracyDisplay
from sklseq.features import TemplateFeatures
from sklseq.metrics import token_accuracy
from sklseq.online import calibration_report


def shape(word):
    """Capitals, letters and digits as A, a, 0; runs cut to two: "Oslo," is "Aaa,"."""
    kinds = re.sub(r"[a-z]", "a", re.sub(r"[A-Z]", "A", re.sub(r"\d", "0", word)))
    return re.sub(r"(.)\1+", r"\1\1", kinds)


def item(word, newline):
    return {"w": word.lower(), "shape": shape(word), "newline": "1" if newline else "0"}


def columns(words, newline):
    rows = [item(*row) for row in zip(words, newline)]
    return {name: [row[name] for row in rows] for name in ("w", "shape", "newline")}


def read_mails(path):
    X, y = read_conll(path, columns=("w", "line", "space", "zone"))
    lines = [np.array(x["line"]) for x in X]
    return [columns(x["w"], np.r_[True, n[1:] != n[:-1]]) for x, n in zip(X, lines)], y


folder = Path(os.environ.get("SKLSEQ_DATA", "")) / "enron-email-fields"
if "SKLSEQ_DATA" in os.environ and folder.is_dir():
    X_train, y_train = read_mails(folder / "train.tsv.gz")
    X_test, y_test = read_mails(folder / "test.tsv.gz")
else:
    X, y = make_contacts(400, random_state=0)
    X = [columns(x["w"], [flag == "1" for flag in x["newline"]]) for x in X]
    X_train, y_train, X_test, y_test = X[:250], y[:250], X[250:], y[250:]
n_test = sum(map(len, y_test))
print(f"{len(X_train)} documents to train, {len(X_test)} to test with {n_test:,} tokens")

# %%
# An ordinary tagger. Its features look at one word on either side, so a row is known one word late.
templates = [f"{c}[{k}]" for c in ("w", "shape") for k in (-1, 0, 1)]
templates += ["w[-1]|w[0]", "shape[-1]|shape[0]", "newline[0]", "newline[1]", "newline[0]|w[0]"]
tagger = make_pipeline(
    TemplateFeatures(templates, columns=["w", "shape", "newline"]),
    CRFTagger(l2=0.3, all_possible_transitions=True, max_iter=200, tol=1e-2, n_jobs=-1),
)
tagger.fit(X_train, y_train)
print(f"accuracy of the tagger, offline: {100 * tagger.score(X_test, y_test):.2f} %")

# %%
# All strategies, with several values of their parameters. Fixed windows and a fixed lag are the
# baselines, "step" and "window" are the proposals of the paper, "closure" always agrees with
# offline decoding.
display = LatencyAccuracyDisplay.from_estimator(tagger, X_test, goal=0.01)
print(f"\n{'strategy':<10}{'setting':>9}{'tokens':>9}{'disagreement':>14}{'above 10':>10}")
for curve in display.curves:
    for value, report in zip(curve.values, curve.reports):
        print(
            f"{curve.strategy:<10}{'' if value is None else value:>9}{report.mean:>9.2f}"
            f"{100 * report.disagreement:>12.3f} %{100 * report.share_above_10:>8.2f} %"
        )

# %%
# The paper's Figure 5 (disagreement with offline decoding against latency) and Figure 6 (the
# distribution of latencies). Latency includes the word that features look ahead.
figure, axes = plt.subplots(1, 2, figsize=(12, 4.8), layout="constrained")
display.plot(axes[0])
axes[0].set_xlim(right=max(curve.latency.max() for curve in display.curves[1:]))
display.plot_look_ahead(axes[1])
output = (Path(__file__).parent if "__file__" in globals() else Path()) / "output"
output.mkdir(exist_ok=True)
figure.savefig(output / "online_decoding.png", dpi=110)
print(f"\nFigures drawn: {output.name}/online_decoding.png")

# %%
# Accuracy against the true labels and mean latency, for several values of ``latency_cost``.
for cost in (0.1, 0.01, 0.001, 0.0):
    decoder = OnlineDecoder(FrozenEstimator(tagger), latency_cost=cost).fit(X_train, y_train)
    report = decoder.latency_report(X_test)
    accuracy = token_accuracy(y_test, decoder.predict(X_test))
    print(f"latency_cost {cost:<6} accuracy {100 * accuracy:.2f} %, {report.mean:.2f} tokens")

# %%
# Confidence against the fraction of labels that are right. ``decide="marginal"`` emits the most
# probable label, here as soon as its features are known and one word later.
figure, ax = plt.subplots(figsize=(5.4, 4.8), layout="constrained")
print()
for lag in (1, 2):
    decoder = OnlineDecoder(FrozenEstimator(tagger), lag=lag, decide="marginal")
    report = calibration_report(decoder, X_test, y_test)
    print(f"lag {lag}: expected calibration error {report.error:.4f}")
    curve = CalibrationDisplay(report.accuracy, report.confidence, None)
    curve.plot(ax=ax, name=f"lag {lag}", ref_line=lag == 1)
ax.set(xlabel="mean confidence", ylabel="fraction of labels that are right")
figure.savefig(output / "online_reliability.png", dpi=110)


# %%
# Live: label a text while it arrives. Final labels are printed once; labels that may still change
# follow in a dim colour. No label waits for more than 15 words.
def words_of(lines):
    """Yield (word, whether it begins a line) for each line as soon as it arrives."""
    for line in lines:
        for k, word in enumerate(re.findall(r"\S+@\S+\w|https?://\S+|\w+|[^\w\s]", line)):
            yield word, k == 0


def show(final, pending, in_color):
    dim, plain = ("\x1b[2m", "\x1b[0m") if in_color else ("(", ")")
    text = " ".join(f"{word}/{label}" if label not in QUIET else word for word, label in final)
    guess = " ".join(f"{word}/{label}" if label not in QUIET else word for word, label in pending)
    print(text, f"{dim}{guess}{plain}" if guess else "", flush=True)


QUIET = {"O", "NOTCONTACT"}


def label_lines(decoder, lines, in_color=False):
    """Label lines of text as they arrive; keep only the words whose labels are pending."""
    stream, waiting = decoder.stream(), []
    for line in lines:
        final = []
        for word, newline in words_of([line]):
            waiting.append(word)
            for emission in stream.push(item(word, newline)):
                final.append((waiting.pop(0), emission.label))
        guesses = [emission.label for emission in stream.provisional]
        show(final, zip(waiting, guesses), in_color)
    show(zip(waiting, [emission.label for emission in stream.flush()]), (), in_color)


live = OnlineDecoder(FrozenEstimator(tagger), latency_cost=0.01, max_latency=15)
live.fit(X_train, y_train)
TEXT = """The invoice is due in September. We met in Norhurst last Monday.

For more information:
Hala W. Bell
Fairbury Systems Corp. - Press Office
17 Oak Road
Norhurst, VA 22475
Phone: 01632 960628
Email: hala.bell@example.org
"""
if "--live" in sys.argv:
    label_lines(live, sys.stdin, in_color=sys.stdout.isatty())
else:
    print()
    label_lines(live, TEXT.splitlines())
