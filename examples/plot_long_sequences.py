"""
Training on a log that does not fit into memory
===============================================

Forward-backward keeps a few numbers for each row and label of a sequence until the backward pass.
For a log of 25 million connections, which is one sequence, that is too much. The entropy message
passing of Ilić, Mančev, Todorović and Stanković (2010) needs no backward pass, and its memory does
not depend on the length. This page repeats their Figure 3, time and memory of both against the
length, and adds checkpoints, another way to save memory. Then it trains a detector of network
intrusions on a log that is never in memory as a whole.

If ``SKLSEQ_DATA`` names a folder that contains ``kddcup99/``, the log is that of the KDD Cup 1999,
otherwise a generated one. It is repeated to reach the lengths needed.
"""

# %%
# The log
# -------
#
# Each row is a record, with a column for each category and each bin of a number; each record has a
# label.
import os
import time
import tracemalloc
import warnings
from itertools import chain
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from sklseq import CRFTagger
from sklseq.datasets import make_connections, read_kdd99

warnings.simplefilter("ignore", ConvergenceWarning)
path = Path(os.environ.get("SKLSEQ_DATA", "")) / "kddcup99" / "kddcup.data_10_percent.csv.gz"
if "SKLSEQ_DATA" in os.environ and path.exists():
    X, y, names = read_kdd99(path, n_records=100_000)
else:
    X, y, names = make_connections(100_000)
print(f"{X.shape[0]:,} records, {X.shape[1]} features, labels {sorted(set(y.tolist()))}")

# %%
# A sequence may be a function that yields blocks of rows: from a file, a database, or, as here,
# from the repeated log. So may its labels; their blocks may have other sizes.


def repeated(values, n, block=4_000):
    """A function that yields n rows of ``values``, a block at a time."""

    def read():
        for first in range(0, n, block):
            start = first % values.shape[0]
            yield values[start : start + min(block, n - first)]

    return read


# %%
# Time and memory against the length
# ----------------------------------
#
# Time of a fit of one iteration, and its memory above the input. Checkpoints need rows that can be
# read in any order, so they get the matrix itself.


def measure(gradient, n):
    rows, labels = repeated(X, n), repeated(y, n)
    if gradient == "checkpoint":
        rows, labels = sparse.vstack(list(rows()), format="csr"), np.concatenate(list(labels()))
    tagger = CRFTagger(gradient=gradient, max_iter=1)
    begin = time.perf_counter()
    tagger.fit([rows], [labels])
    seconds = time.perf_counter() - begin
    tracemalloc.start()
    tagger.fit([rows], [labels])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return seconds, peak


gradients = ("forward-backward", "checkpoint", "emp")
lengths = [10_000, 30_000, 100_000, 300_000, 1_000_000]
measured = {g: np.array([measure(g, n) for n in lengths]) for g in gradients}
for gradient, values in measured.items():
    print(gradient, *(f"{t:.2f} s {m / 1e6:.1f} MB" for t, m in values), sep="  ")

fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for k, (ax, title) in enumerate(zip(axes, ("seconds of a fit", "peak memory above the input, MB"))):
    for gradient, marker in zip(gradients, "os^"):
        ax.loglog(lengths, measured[gradient][:, k] / (1, 1e6)[k], marker=marker, label=gradient)
    ax.set(title=title, xlabel="records T")
    ax.grid(alpha=0.3)
axes[0].legend()

# %%
# A detector
# ----------
#
# The detector is trained on the first 70 % of the log as one sequence, and labels the rest, also in
# blocks. It emits a label as soon as no later record can change it, and keeps only the few records
# whose labels are pending. Logistic regression has the same features, one record at a time.
n = 7 * len(y) // 10
detector = CRFTagger(gradient="emp", max_iter=200)
detector.fit([repeated(X[:n], n)], [repeated(y[:n], n)])
blocks = (X[a : a + 5_000] for a in range(n, len(y), 5_000))
predicted = list(chain.from_iterable(detector.predict_blocks(blocks)))
single = LogisticRegression(C=0.5, max_iter=200).fit(X[:n], y[:n]).predict(X[n:])

classes = detector.classes_
scores = {
    name: f1_score(y[n:], labels, labels=classes, average=None, zero_division=0)
    for name, labels in (
        ("CRF, the log as one sequence", predicted),
        ("a record at a time", single),
    )
}
for name, values in scores.items():
    print(f"{name:30}", *(f"{c} {v:.3f}" for c, v in zip(classes, values)), sep="  ")

fig, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
for k, (name, values) in enumerate(scores.items()):
    ax.bar(np.arange(len(classes)) + 0.4 * k, values, width=0.38, label=name)
ax.set(title="F1 of each label", xticks=np.arange(len(classes)) + 0.2, ylim=(0, 1.25))
ax.set_xticklabels(classes)
ax.legend(loc="upper center", ncols=2)
plt.show()
