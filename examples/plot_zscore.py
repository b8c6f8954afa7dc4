"""
Training by one linear solve
============================

A z-score tagger is trained without iterations over the data: its weights are the solution of one
linear system. This page repeats two experiments of Ricci, De Bie and Cristianini (2007) on
sequences drawn from random hidden Markov models, and shows the z-score of a single sequence.
"""

# %%
# Sequences of a random hidden Markov model: the symbols are the input, the states are the labels.
from pathlib import Path
from statistics import mean, median
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np

from sklseq import CRFTagger, HMSVMTagger, ZScoreTagger, ZScoreTaggerCV


def random_model(rng, n_states, n_symbols, concentration=1.0):
    """Return a function that draws n labelled sequences of a given length."""
    A = rng.dirichlet(np.full(n_states, concentration), n_states)
    E = rng.dirichlet(np.full(n_symbols, concentration), n_states)

    def choose(shares):
        return (rng.random((len(shares), 1)) > shares.cumsum(axis=1)[:, :-1]).sum(axis=1)

    def draw(n, length):
        y = np.zeros((n, length), dtype=int)
        y[:, 0] = rng.integers(n_states, size=n)
        for t in range(1, length):
            y[:, t] = choose(A[y[:, t - 1]])
        symbols = choose(E[y.ravel()])
        return list(np.eye(n_symbols)[symbols].reshape(n, length, n_symbols)), list(y)

    return draw


def measure(model, train, test):
    """Return (wrong labels in percent, milliseconds of training)."""
    began = perf_counter()
    model.fit(*train)
    return 100 * (1 - model.score(*test)), 1e3 * (perf_counter() - began)


# %%
# Error and time against the size of the training set: 3 states, 4 symbols, sequences of 10 rows
# (the paper's Figure 1). With the Hamming loss, true labelings have to exceed
# labelings with many wrong labels by more.
models = {
    "z-score": ZScoreTagger(transitions="covariance", loss=None, l2=0.1),
    "z-score, Hamming": ZScoreTagger(transitions="covariance", l2=0.1),
    "CRF": CRFTagger(l2=0.1),
    "HM-SVM, Hamming": HMSVMTagger(C=1.0),
}
sizes, n_runs = [5, 10, 20, 50, 100, 200], 20
errors, times = ({name: [] for name in models} for _ in range(2))
for size in sizes:
    found = {name: [] for name in models}
    for run in range(n_runs):  # the same models for every size
        draw = random_model(np.random.default_rng(run), 3, 4)
        train, test = draw(size, 10), draw(100, 10)
        while len(np.unique(train[1])) < 3:
            train = draw(size, 10)
        for name, model in models.items():
            found[name].append(measure(model, train, test))
    for name, pairs in found.items():
        errors[name].append(mean(error for error, _ in pairs))
        times[name].append(median(time for _, time in pairs))

print(f"{'sequences':<20}" + "".join(f"{size:>9}" for size in sizes))
for name in models:
    print(f"{name:<20}" + "".join(f"{error:>8.1f}%" for error in errors[name]))
    print(f"{'':<20}" + "".join(f"{time:>7.1f}ms" for time in times[name]))

# %%
# Two states, 3 to 11 symbols, sequences of 100 rows (the paper's Table 1). The closed form is
# compared with means and covariances estimated from a hundred random labelings of each sequence.
print(f"\n{'symbols':<10}{'exact':>9}{'100 random labelings':>26}")
for n_symbols in range(3, 12, 2):
    rng, table = np.random.default_rng(1), {"exact": [], "sampling": []}
    for _ in range(5):
        draw = random_model(rng, 2, n_symbols, 0.3)
        train, test = draw(50, 100), draw(100, 100)
        for moments, column in table.items():
            model = ZScoreTagger(
                transitions="covariance", loss=None, l2=0.0, moments=moments, random_state=0
            )
            column.append(measure(model, train, test))
    exact, sampled = (
        f"{mean(e for e, _ in column):.2f}% ({median(t for _, t in column):.0f} ms)"
        for column in table.values()
    )
    print(f"{n_symbols:<10}{exact:>15}{sampled:>20}")

# %%
# The ridge is chosen by leave-one-sequence-out scores, which need no repeated training.
draw = random_model(np.random.default_rng(0), 3, 6)
train, test = draw(50, 30), draw(100, 30)
tagger = ZScoreTaggerCV(l2s=np.logspace(-3, 3, 13)).fit(*train)
print(f"\nBest ridge {tagger.l2_:g}, accuracy {tagger.best_score_:.3f} left out")
print(f"Accuracy on new sequences {tagger.score(*test):.3f}")

# %%
# The z-score of one sequence: the score of its true labels relative to those of random labelings.
draw = random_model(np.random.default_rng(3), 3, 6, 0.5)
train, test = draw(50, 30), draw(1, 30)
tagger = ZScoreTagger(l2=0.1).fit(*train)
(z,), (p_value,) = tagger.sequence_zscore(*test)
emission, transition, *_ = tagger.potentials(test[0])


def score(paths):
    rows = emission[np.arange(30), paths].sum(axis=1)
    return rows + transition[paths[:, :-1], paths[:, 1:]].sum(axis=1)


random_scores = score(np.random.default_rng(0).integers(3, size=(20_000, 30)))
true_score = score(np.array(test[1]))[0]
best_score = tagger.predict_nbest(test[0], 1)[0][1][0]
print(f"\nz-score of the true labels {z:.2f}, p-value {p_value:.1e}")

# %%
# The figures.
figure, panels = plt.subplot_mosaic("ET;SS", figsize=(9, 7), layout="constrained")
axes = [panels[name] for name in "ETS"]
for name in models:
    axes[0].plot(sizes, errors[name], marker="o", label=name)
    axes[1].plot(sizes, times[name], marker="o", label=name)
axes[0].set(xscale="log", xlabel="training sequences", ylabel="wrong labels, %", title="Error")
axes[1].set(
    xscale="log", yscale="log", xlabel="training sequences", ylabel="ms", title="Training time"
)
axes[1].legend(loc="upper left", frameon=False, labelspacing=0.2)
axes[2].hist(random_scores, bins=60, density=True, color="0.75", label="random labelings")
grid = np.linspace(random_scores.min(), random_scores.max(), 200)
center, width = random_scores.mean(), random_scores.std()
normal = np.exp(-0.5 * ((grid - center) / width) ** 2) / (width * np.sqrt(2 * np.pi))
axes[2].plot(grid, normal, color="0.4", label="normal")
axes[2].axvline(true_score, color="C2", label=f"true labels, z = {z:.1f}")
axes[2].axvline(best_score, color="C3", linestyle="--", label="best labels")
axes[2].set(xlabel="score", yticks=[], title="Scores of one sequence's labelings")
axes[2].set_ylim(0, 1.45 * normal.max())
axes[2].legend(ncols=2, loc="upper center")
output = (Path(__file__).parent if "__file__" in globals() else Path()) / "output"
output.mkdir(exist_ok=True)
figure.savefig(output / "zscore.png", dpi=110)
print(f"Drawn: {output.name}/zscore.png")
