"""
Named entities: a search over penalties and windows
===================================================

This page searches the parameters of the extractor (the window) and of the tagger (the penalties)
together, at random, with span F1 as the score. If the environment variable ``SKLSEQ_DATA`` names a
folder that contains ``conll2002/``, the task is to find persons, places and organisations in
Spanish newspaper text. Otherwise it is to find the fields of generated references.
``N_SENTENCES`` is the number of sequences to use.
"""

# %%
# Data: a dict of columns and a list of IOB2 labels for each sequence.
import os
import tempfile
from pathlib import Path
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import loguniform, randint
from sklearn.model_selection import KFold, RandomizedSearchCV, train_test_split
from sklearn.pipeline import FeatureUnion, Pipeline

from sklseq import CRFTagger
from sklseq.datasets import make_citations, read_conll
from sklseq.features import TokenFeatures, WindowFeatures
from sklseq.inspection import top_features
from sklseq.metrics import span_f1, span_f1_scorer, span_report

folder = Path(os.environ.get("SKLSEQ_DATA", "")) / "conll2002"
on_real_data = "SKLSEQ_DATA" in os.environ and folder.is_dir()
n = int(os.environ.get("N_SENTENCES", "1200" if on_real_data else "150"))
if on_real_data:
    X_train, y_train = read_conll(folder / "esp.train.gz", columns=("w", "tag"))
    X_train, y_train = X_train[:n], y_train[:n]
    X_test, y_test = read_conll(folder / "esp.testb.gz", columns=("w", "tag"))
else:
    X, y = make_citations(n, random_state=0)
    X = [{"w": x, "tag": ["NUM" if any(map(str.isdigit, w)) else "WORD" for w in x]} for x in X]
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
print(f"{len(X_train)} sequences to train on, {len(X_test)} to test on")

# %%
# The features are those of the sklearn-crfsuite tutorial: lower case, suffixes, flags, the tag and
# its first letters, of the token and of its neighbours. They are part of the
# pipeline, so their parameters can be searched; ``memory`` caches extracted features.
off = dict(word=False, lower=False, shape=False, short_shape=False, prefixes=0, suffixes=0,
           flags=False, length=False)  # fmt: skip
words = TokenFeatures(
    columns="w", **off | {"lower": True, "suffixes": [2, 3], "flags": ["upper", "title", "digit"]}
)
tags = TokenFeatures(columns="tag", **off | {"word": True, "prefixes": [2]})
union = FeatureUnion([("word", words), ("tag", tags)], verbose_feature_names_out=False)

cache = tempfile.TemporaryDirectory()
model = Pipeline(
    [("window", WindowFeatures(union)), ("crf", CRFTagger())],
    memory=cache.name,
)

# %%
# Twelve draws. ``before`` and ``after`` are at most two tokens; the penalties are log-uniform.
search = RandomizedSearchCV(
    model,
    {
        "crf__l1": loguniform(1e-2, 3),
        "crf__l2": loguniform(1e-3, 1),
        "window__before": randint(0, 3),
        "window__after": randint(0, 3),
    },
    n_iter=12,
    scoring=span_f1_scorer,
    cv=KFold(3, shuffle=True, random_state=0),
    random_state=0,
)
began = perf_counter()
search.fit(X_train, y_train)
results = search.cv_results_
print(f"{len(results['params'])} models on 3 folds in {perf_counter() - began:.0f} s; the best:")
for name, value in search.best_params_.items():
    print(f"  {name} = {value:.3g}")

# %%
# The score on the test set, which the search did not use.
predicted = search.predict(X_test)
print(f"span F1: {search.best_score_:.3f} in the search, {span_f1(y_test, predicted):.3f} on test")
print(span_report(y_test, predicted))

# %%
# The strongest features of the best model. ``-1:w.lower=en`` means that the word before is "en".
for weight, label, name in top_features(search.best_estimator_, 10):
    print(f"{weight:6.2f}  {label:12} {name}")

# %%
# Each circle is a draw: its penalties on the left, its window on the right. The bars are one
# standard deviation over the folds: choices whose bars overlap may differ by chance.
l1, l2 = (np.array(results[f"param_crf__l{k}"], dtype=float) for k in (1, 2))
reach = [np.array(results[f"param_window__{side}"], dtype=int) for side in ("before", "after")]
score = results["mean_test_score"]

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
points = left.scatter(l1, l2, c=score, s=120, cmap="viridis", edgecolor="black", linewidth=0.5)
left.set(xscale="log", yscale="log", xlabel="l1", ylabel="l2", title="Penalties")
figure.colorbar(points, ax=left, label="span F1")
shift = np.random.default_rng(0).uniform(-0.12, 0.12, size=len(score))
right.scatter(
    sum(reach) + shift, score, c=score, s=120, cmap="viridis", edgecolor="black", linewidth=0.5
)
right.errorbar(
    sum(reach) + shift, score, results["std_test_score"], fmt="none", ecolor="gray", zorder=0
)
right.set(xlabel="neighbours seen (before + after)", ylabel="span F1", title="Windows")
right.set_xticks(range(5))
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
left.xaxis.set_minor_formatter("")
cache.cleanup()
plt.show()
