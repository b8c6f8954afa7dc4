"""
Are the probabilities right?
============================

Of the phrases that a model finds with a probability near 0.8, about 80 % should be right. This
page draws the fraction that is right against the probability, for labels of tokens and for whole
phrases, and shows what an excess of training data, or a lack, changes. The task is chunking
(CoNLL-2000); without the corpus it is to find the fields of generated references.
"""

# %%
# Data.
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibrationDisplay
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, labels_to_segments
from sklseq.datasets import fetch_conll2000, make_citations, read_conll
from sklseq.features import TokenFeatures, WindowFeatures
from sklseq.inspection import spans
from sklseq.metrics import span_f1

folder = Path(os.environ.get("SKLSEQ_DATA", "no folder")) / "conll2000"
try:
    if folder.is_dir():
        X, y = read_conll(folder / "train.txt.gz", columns=["w", "pos"])
    else:
        X, y = fetch_conll2000(n_retries=0)
    X, y, name = [x["w"] for x in X[:3000]], y[:3000], "CoNLL-2000"
except (ImportError, OSError):
    (X, y), name = make_citations(600, random_state=0), "generated references"
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0)
print(f"{name}: {len(X_train)} sequences to train on")

# %%
# Two penalties: the weaker one fits the training data more closely.
features = WindowFeatures(TokenFeatures())
models = {l2: make_pipeline(features, CRFTagger(l2=l2, tol=1e-3)) for l2 in (0.003, 1.0)}


def of_tokens(model):
    """Probability of each predicted label, and whether it is right."""
    proba, truth = np.concatenate(model.predict_proba(X_test)), np.concatenate(y_test)
    return proba.max(axis=1), model[-1].classes_[proba.argmax(axis=1)] == truth


def of_spans(model):
    """Probability of each predicted field, and whether it is right."""
    pairs = [
        (span.probability, tuple(span)[:3] in true)
        for found, true in zip(
            spans(model, X_test), (set(labels_to_segments(labels)) for labels in y_test)
        )
        for span in found
    ]
    probability, right = zip(*pairs)
    return np.array(probability), np.array(right)


# %%
# Points on the diagonal are calibrated, points below it too certain.
figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
for (l2, model), marker in zip(models.items(), "os"):
    model.fit(X_train, y_train)
    f1 = span_f1(y_test, model.predict(X_test))
    for ax, answers, what in zip(axes, (of_tokens, of_spans), ("labels of tokens", "phrases")):
        probability, right = answers(model)
        CalibrationDisplay.from_predictions(
            right, probability, n_bins=10, strategy="quantile", ax=ax, name=f"l2={l2}",
            marker=marker,
        )  # fmt: skip
        gap = abs(probability.mean() - right.mean())
        print(f"l2={l2}: F1 {f1:.3f}; {what}: mean probability minus fraction right {gap:.3f}")
        ax.set(title=what, xlabel="mean probability", ylabel="fraction that is right")
plt.show()
