"""
Margins, support sequences and kernels
======================================

A hidden Markov support vector machine is trained so that every true labeling scores higher than
any other, by at least the loss of the other. Only a few wrong labelings determine this margin: the
support sequences. This page repeats the figure of Altun, Tsochantaridis and Hofmann (2003), and
compares kernels.
"""

# %%
# Sentences drawn from a few patterns. Most names can be those of persons, places or companies; only
# the words around them determine the type.
import gzip
import os
from pathlib import Path
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np

from sklseq import HMSVMTagger, Sequences
from sklseq.features import TemplateFeatures

NAMES = ["Lincoln", "Jordan", "Paris", "Austin", "Chelsea", "Florence", "Madison", "Wells", "Ford"]
PATTERNS = [
    "PER PER said in LOC that sales of ORG rose",
    "ORG will open an office in LOC",
    "the mayor of LOC , PER PER , met ORG ORG",
    "PER left ORG ORG for LOC last year",
    "shares of ORG fell after PER PER resigned",
    "in LOC , ORG and PER PER signed a deal",
]


def draw_sentences(n, seed):
    rng, words, y = np.random.default_rng(seed), [], []
    for _ in range(n):
        pattern = PATTERNS[rng.integers(len(PATTERNS))].split()
        before = ["", *pattern]
        words.append([str(rng.choice(NAMES)) if w.isupper() else w for w in pattern])
        y.append(
            [
                "O" if not w.isupper() else f"{'I' if w == b else 'B'}-{w}"
                for b, w in zip(before, pattern)
            ]
        )
    return words, y


words, y = draw_sentences(60, 0)
rows = TemplateFeatures(["w[-1]", "w[0]", "w[1]"]).fit_transform(words)
kernel = {"kernel": "poly", "degree": 2, "gamma": 0.1, "coef0": 1.0}
tagger = HMSVMTagger(C=1.0, loss="zero_one", random_state=0, **kernel)
tagger.fit(rows, y)
print(f"{rows.n_rows} words, {tagger.n_support_} of them support the margin")
print(f"objective {tagger.objective_:.1f}, at most {tagger.dual_gap_:.1f} above its minimum")

# %%
# One sequence and its support sequences (with the paper's loss: 1 for any wrong labeling). They
# differ from the truth in a few positions only, so the solution is sparse. A dot stands for a
# position that agrees with the truth.
support = {}
for sequence, labels, alpha in tagger.support_sequences_:
    support.setdefault(sequence, []).append((alpha, labels))
chosen = max(
    (s for s in support if len(words[s]) <= 14), key=lambda s: (min(len(support[s]), 6), -s)
)
print("\n" + " ".join(words[chosen]))
print(" ".join(y[chosen]))
for alpha, labels in support[chosen][:6]:
    shown = [str(p) if p != t else "·" for p, t in zip(labels, y[chosen])]
    print(f"{alpha:.3f}  " + " ".join(shown))

# %%
# Primal and dual objective: the minimum lies between them after every pass.
curves = HMSVMTagger(C=1.0, tol=1e-3, random_state=0, **kernel).fit(rows, y).loss_curve_

# %%
# Kernels on handwritten words, if ``SKLSEQ_DATA`` has them, and otherwise on random letters. Each
# letter is a pattern or its negative, so no linear score of the pixels distinguishes them.


def read_letters(path):
    with gzip.open(path, "rt") as file:
        words = [word.split("\n") for word in file.read().strip().split("\n\n")]
    cells = [[line.split("\t") for line in word] for word in words]
    X = [np.array([list("".join(line[:-1])) for line in word], dtype=float) for word in cells]
    return Sequences.from_list(X), [[line[-1] for line in word] for word in cells]


def draw_letters(n, seed):
    """Labels 0 and 1 follow each other often; the pixels of both are ± one of three patterns."""
    rng = np.random.default_rng(seed)
    patterns = np.random.default_rng(0).normal(size=(3, 20))
    X, y = [], []
    for _ in range(n):
        labels = np.cumsum(rng.random(8) < 0.3) % 3
        sign = rng.choice([-1, 1], size=(8, 1))
        X.append(sign * patterns[labels] + 0.8 * rng.normal(size=(8, 20)))
        y.append(labels)
    return Sequences.from_list(X), y


folder = Path(os.environ.get("SKLSEQ_DATA", "")) / "ocr-letters"
if "SKLSEQ_DATA" in os.environ and folder.is_dir():
    train, test = (read_letters(folder / f"{name}.tsv.gz") for name in ("fold0", "folds1-9"))
    gamma = 0.05
else:
    train, test, gamma = draw_letters(100, 1), draw_letters(200, 2), "scale"
models = {
    "linear": HMSVMTagger(C=0.1, random_state=0),
    "poly": HMSVMTagger(kernel="poly", degree=2, gamma=gamma, coef0=1.0, random_state=0),
    "rbf": HMSVMTagger(kernel="rbf", gamma=gamma, random_state=0),
}
accuracy, seconds = {}, {}
for name, model in models.items():
    began = perf_counter()
    model.fit(*train)
    seconds[name] = perf_counter() - began
    accuracy[name] = model.score(*test)
    print(f"{name:<8} {100 * accuracy[name]:.1f} % of letters right, {seconds[name]:.2f} s")

# %%
# The figures.
figure, panels = plt.subplot_mosaic("SS;GK", figsize=(9, 7.5), layout="constrained")
axes = [panels[name] for name in "SGK"]
shown = support[chosen][:6]
lines = [("", y[chosen]), *((f"α = {alpha:.3f}", labels) for alpha, labels in shown)]
axes[0].set(xlim=(-0.5, len(words[chosen]) - 0.5), ylim=(len(lines) - 0.5, -0.9))
for k, (_, labels) in enumerate(lines):
    for t, label in enumerate(labels):
        differs = k and label != y[chosen][t]
        text = str(label) if k == 0 or differs else "·"
        color = "C3" if differs else "0.15" if k == 0 else "0.6"
        axes[0].text(t, k, text, ha="center", va="center", color=color)
axes[0].set_xticks(range(len(words[chosen])), words[chosen])
axes[0].xaxis.tick_top()
axes[0].set_yticks(range(len(lines)), ["truth", *(name for name, _ in lines[1:])])
axes[0].tick_params(length=0)
axes[0].set_title("A sequence and its support sequences")
axes[1].plot(curves[:, 0], curves[:, 1], marker=".", label="primal")
axes[1].plot(curves[:, 0], curves[:, 2], marker=".", label="dual")
axes[1].set(xscale="log", yscale="log", xlabel="passes", title="The minimum lies between")
axes[1].legend()
bars = axes[2].bar(list(models), [100 * a for a in accuracy.values()], color=["C0", "C1", "C2"])
axes[2].bar_label(bars, [f"{100 * accuracy[m]:.1f}\n{seconds[m]:.1f} s" for m in models])
axes[2].set(ylabel="letters right, %", ylim=(0, 118), title="Kernels")
output = (Path(__file__).parent if "__file__" in globals() else Path()) / "output"
output.mkdir(exist_ok=True)
figure.savefig(output / "hmsvm.png", dpi=110)
print(f"Drawn: {output.name}/hmsvm.png")
