"""
Would more data help?
=====================

This page draws the F1 of four estimators against the number of training sentences. If a curve still
rises at its right end, label more data; if not, look for better features. The task is chunking
(CoNLL-2000); without the corpus it is to find the fields of generated references.
"""

# %%
# Data. The features are extracted once, for all estimators.
import os
from pathlib import Path
from time import process_time

import matplotlib.pyplot as plt

from sklseq import CRFTagger, HMSVMTagger, ZScoreTagger
from sklseq.datasets import fetch_conll2000, make_citations, read_conll
from sklseq.features import TokenFeatures, WindowFeatures
from sklseq.metrics import span_f1

folder = Path(os.environ.get("SKLSEQ_DATA", "no folder")) / "conll2000"
try:
    if folder.is_dir():
        X, y = read_conll(folder / "train.txt.gz", columns=["w", "pos"])
    else:
        X, y = fetch_conll2000(n_retries=0)
    X, y = [x["w"] for x in X[:3000]], y[:3000]
    sizes, n_test, name = [50, 150, 500, 2000], 1000, "CoNLL-2000"
except (ImportError, OSError):
    X, y = make_citations(900, random_state=0)
    sizes, n_test, name = [20, 60, 200, 500], 400, "generated references"
features = WindowFeatures(TokenFeatures())
test, rest = slice(0, n_test), slice(n_test, None)

# %%
# Four estimators, on more and more of the sentences. The penalties are not tuned.
models = {
    "CRFTagger": CRFTagger(l2=0.3),
    "HMSVMTagger": HMSVMTagger(C=0.1, random_state=0),
    "perceptron": HMSVMTagger(solver="perceptron", max_iter=10, random_state=0),
    "ZScoreTagger": ZScoreTagger(l2=0.1),
}
scores, seconds = ({key: [] for key in models} for _ in range(2))
for size in sizes:
    rows = features.fit_transform(X[rest][:size])
    test_rows = features.transform(X[test])
    for key, model in models.items():
        began = process_time()
        model.fit(rows, y[rest][:size])
        seconds[key].append(process_time() - began)
        scores[key].append(span_f1(y[test], model.predict(test_rows)))
for key in models:
    print(f"{key:14}", *(f"{score:.3f}" for score in scores[key]), f"  {seconds[key][-1]:.2f} s")

# %%
# The curves, and the time of training.
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for (key, values), marker in zip(scores.items(), "osD^"):
    axes[0].plot(sizes, values, marker=marker, label=key)
    axes[1].plot(sizes, seconds[key], marker=marker, label=key)
axes[0].set(xscale="log", xlabel="training sentences", ylabel="F1 of spans", title=name)
axes[1].set(xscale="log", yscale="log", xlabel="training sentences", ylabel="seconds of training")
for ax in axes:
    ax.set_xticks(sizes, sizes)
    ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)
axes[0].legend(frameon=False)
plt.show()
