"""
Choosing penalties
==================

Which penalty, and does it matter? :class:`sklseq.CRFTaggerCV` trains along the penalties from the
strongest to the weakest and starts each model from the one before. This page draws the scores with
their standard errors, the number of weights that L1 leaves, and a training that stops early. The
task is to find named entities (CoNLL-2002, Spanish); without the corpus it is to find the fields of
generated references.
"""

# %%
# Data.
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from sklseq import CRFTagger, CRFTaggerCV
from sklseq.datasets import fetch_conll2002, make_citations, read_conll
from sklseq.display import LossCurveDisplay, PenaltyPathDisplay
from sklseq.features import TokenFeatures, WindowFeatures

folder = Path(os.environ.get("SKLSEQ_DATA", "no folder")) / "conll2002"
try:
    if folder.is_dir():
        X, y = read_conll(folder / "esp.train.gz", columns=["w", "pos"])
    else:
        X, y = fetch_conll2002(n_retries=0)
    X, y, name = [x["w"] for x in X[:1500]], y[:1500], "CoNLL-2002, Spanish"
except (ImportError, OSError):
    (X, y), name = make_citations(150, random_state=0), "generated references"
rows = WindowFeatures(TokenFeatures()).fit_transform(X)
print(f"{name}: {len(X)} sequences, {rows.rows.shape[1]:,} features")

# %%
# Three folds and seven penalties in one ``fit``.
search = CRFTaggerCV(l2s=np.logspace(-3, 1.5, 7), cv=3, scoring="span_f1").fit(rows, y)
print(f"l2 = {search.l2_:.3g}, F1 {search.best_score_:.3f}")
PenaltyPathDisplay.from_estimator(search).plot()

# %%
# L1 sets weights to zero: smaller models at little loss, up to a point.
n_weights = {}
for l1 in (0.03, 0.1, 0.3, 1.0, 3.0):
    tagger = CRFTagger(l1=l1, l2=0.01).fit(rows, y)
    n_weights[l1] = np.count_nonzero(tagger.coef_)
    print(f"l1 = {l1:4}: {n_weights[l1]:7,} weights of features")

# %%
# The objective of training, and the score of a tenth of the sequences, which early stopping sets
# aside: training ends when this score has not risen for some iterations.
stopped = CRFTagger(l2=0.01, solver="lbfgs", early_stopping=True, random_state=0).fit(rows, y)
LossCurveDisplay.from_estimator(stopped).plot()
plt.show()
