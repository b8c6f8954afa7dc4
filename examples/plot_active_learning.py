"""
Which sequence to label next
============================

Labels are expensive. This page starts from ten labelled references and adds those of which the
model is least certain, and compares this with references drawn at random. Then it keeps only a part
of the labels of each reference: a conditional random field also learns from partly labelled
sequences.
"""

# %%
# A pool of references without labels, and a test set.
import matplotlib.pyplot as plt
import numpy as np

from sklseq import CRFTagger
from sklseq.datasets import make_citations
from sklseq.features import TokenFeatures, WindowFeatures
from sklseq.inspection import uncertainty
from sklseq.metrics import span_f1

X, y = make_citations(600, random_state=0)
y = np.array([np.array(labels) for labels in y], dtype=object)
rows = WindowFeatures(TokenFeatures()).fit(X[:300]).transform(X)
pool, test = np.arange(300), np.arange(300, 600)


def f1_of(labelled):
    tagger = CRFTagger(l2=0.1).fit(rows[labelled], y[labelled])
    return tagger, span_f1(y[test], tagger.predict(rows[test]))


# %%
# Five rounds of ten references each, by both rules, from the same start.
sizes, curves = range(10, 61, 10), {}
for rule in ("least certain", "at random"):
    rng, labelled, curves[rule] = np.random.default_rng(0), pool[:10], []
    for _ in sizes:
        tagger, f1 = f1_of(labelled)
        curves[rule].append(f1)
        left = np.setdiff1d(pool, labelled)
        if rule == "at random":
            chosen = rng.permutation(left)[:10]
        else:
            chosen = left[np.argsort(-uncertainty(tagger, rows[left]))[:10]]
        labelled = np.concatenate([labelled, chosen])
    print(f"{rule:14}", *(f"{f1:.3f}" for f1 in curves[rule]))

# %%
# Partly labelled: in each of 60 references, the labels of a part of the tokens are unknown (None).
rng, known = np.random.default_rng(0), {}
for fraction in (0.1, 0.25, 0.5, 1.0):
    partial = [
        [label if rng.random() < fraction else None for label in labels] for labels in y[:60]
    ]
    tagger = CRFTagger(l2=0.1).fit(rows[:60], partial)
    known[fraction] = span_f1(y[test], tagger.predict(rows[test]))
    print(f"{fraction:4.0%} of the labels known: F1 {known[fraction]:.3f}")

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for (rule, values), style in zip(curves.items(), ("o-", "s--")):
    axes[0].plot(sizes, values, style, label=rule)
axes[0].set(xlabel="labelled references", ylabel="F1 of fields", title="Which to label next")
axes[0].legend(frameon=False)
axes[1].plot([100 * f for f in known], list(known.values()), "o-")
axes[1].set(xlabel="labels known in 60 references (%)", title="Partly labelled references")
for ax in axes:
    ax.spines[["top", "right"]].set_visible(False)
plt.show()
