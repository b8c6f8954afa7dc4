"""
Which sequence to label next
============================

Labels are expensive. This page starts from ten labelled references and adds those of which the
model is least certain, or single tokens, and compares this with references drawn at random. For
an F1 of 0.94, the least certain references have half as many tokens as random ones; so few
references do not show the gain of single tokens, which need 0.3 times the labels of random
ones on CoNLL-2000 (:doc:`/partial_labels`). Then it keeps only a part of the labels of each
reference, at random.
"""

# %%
# A pool of references without labels, and a test set.
import matplotlib.pyplot as plt
import numpy as np

from sklseq import CRFTagger
from sklseq.datasets import make_citations
from sklseq.features import TokenFeatures, WindowFeatures
from sklseq.inspection import uncertain_rows, uncertainty
from sklseq.metrics import span_f1

X, y = make_citations(600, random_state=0)
y = np.array([np.array(labels) for labels in y], dtype=object)
rows = WindowFeatures(TokenFeatures()).fit(X[:300]).transform(X)
pool, test = np.arange(300), np.arange(300, 600)


# %%
# Five rounds, from ten references on. Tokens cost work, so each round asks for as many tokens as
# ten references have on average: of random references; of the least certain ones, whose labels
# have the largest mean entropy; or single tokens, the other labels of a reference being unknown.
# Mean of three draws.
lengths = np.diff(rows[pool].offsets)
owner, step = np.repeat(pool, lengths), int(10 * lengths.mean())


def partly(known):
    flags = np.split(known, np.cumsum(lengths)[:-1])
    return [[j if k else None for j, k in zip(*pair)] for pair in zip(y[pool], flags)]


def ask(rule, tagger, known, rng):
    if rule == "single tokens":
        found = uncertain_rows(tagger, rows[pool], step, partly(known))
        return [rows.offsets[s] + t for s, t in found]
    left = np.setdiff1d(pool, owner[known])
    value = rng.random(len(left)) if rule == "at random" else uncertainty(tagger, rows[left])
    order = left[np.argsort(-value)]
    return np.isin(owner, order[np.cumsum(lengths[order]) <= step])


def curve(rule, seed):
    rng, found = np.random.default_rng(seed), []
    known = np.isin(owner, rng.permutation(pool)[:10])
    for _ in range(6):
        tagger = CRFTagger(l2=0.1).fit(rows[pool], partly(known))
        found.append((known.sum(), span_f1(y[test], tagger.predict(rows[test]))))
        known[ask(rule, tagger, known, rng)] = True
    return found


curves = {}
for rule in ("at random", "least certain", "single tokens"):
    curves[rule] = np.mean([curve(rule, seed) for seed in range(3)], axis=0)
    print(f"{rule:14}", *(f"{n:.0f}: {f1:.3f}" for n, f1 in curves[rule]))

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
for (rule, points), style in zip(curves.items(), ("o-", "s--", "D:")):
    axes[0].plot(*points.T, style, label=rule)
axes[0].set(xlabel="labelled tokens", ylabel="F1 of fields", title="Which to label next")
axes[0].legend(frameon=False)
axes[1].plot([100 * f for f in known], list(known.values()), "o-")
axes[1].set(xlabel="labels known in 60 references (%)", title="Partly labelled references")
for ax in axes:
    ax.spines[["top", "right"]].set_visible(False)
plt.show()
