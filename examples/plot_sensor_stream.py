"""
States of a sensor, while it measures
=====================================

A recording is a sequence of numbers, and its states last for many rows: a gesture, a machine that
runs or stands. This page trains on recordings with known states and labels new rows as they
arrive. The recordings are generated.
"""

# %%
# In generated recordings, the mean of two noisy numbers depends on the state. Single rows are not
# enough to tell the states apart.
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Patch
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklseq import CRFTagger, OnlineDecoder
from sklseq.display import LatencyAccuracyDisplay
from sklseq.features import PerToken

STATES = np.array(["stand", "warm up", "run"])
MEANS = np.array([[0.0, 0.0], [1.0, 0.4], [1.2, 1.6]])


def record(rng, n=200):
    states, state = [], 0
    while len(states) < n:
        states += [state] * rng.integers(10, 40)
        state = (state + 1) % 3 if rng.random() < 0.9 else 0
    states = np.array(states[:n])
    return MEANS[states] + rng.normal(scale=1.0, size=(n, 2)), STATES[states]


rng = np.random.default_rng(0)
X, y = map(list, zip(*(record(rng) for _ in range(30))))
train, test = slice(0, 20), slice(20, None)
new_rows, states = X[20], y[20]

# %%
# A conditional random field on scaled numbers, and a classifier of single rows for comparison.
scale = PerToken(StandardScaler())
model = make_pipeline(scale, CRFTagger(l2=0.1)).fit(X[train], y[train])
single = make_pipeline(StandardScaler(), LogisticRegression())
single.fit(np.concatenate(X[train]), np.concatenate(y[train]))
alone = single.score(np.concatenate(X[test]), np.concatenate(y[test]))
print(f"rows right: {alone:.3f} one by one, {model.score(X[test], y[test]):.3f} with neighbours")

# %%
# Rows arrive one by one. A label waits until it is certain enough, for at most 15 rows.
decoder = OnlineDecoder(FrozenEstimator(model), latency_cost=0.01, max_latency=15)
stream, emitted = decoder.stream(), []
for row in new_rows:
    emitted += stream.push(row)
emitted += stream.flush()
online = np.array([emission.label for emission in emitted])
waits = np.array([emission.latency for emission in emitted])
print(f"rows right: {np.mean(online == states):.3f}, after {waits.mean():.1f} rows on average")

# %%
# The signal, its true states, and those of the stream.
figure, axes = plt.subplots(
    3, 1, figsize=(9, 4.5), sharex=True, layout="constrained", height_ratios=[3, 0.7, 0.7]
)
axes[0].plot(new_rows, lw=0.8)
axes[0].set(ylabel="measured", title="A new recording")
names = np.sort(STATES)
for ax, labels, name in zip(axes[1:], (states, online), ("true", "stream")):
    codes = np.searchsorted(names, labels)
    ax.imshow(codes[None], aspect="auto", vmin=0, vmax=2, interpolation="nearest")
    ax.set_yticks([0], [name])
axes[-1].set(xlabel="row")
colours = [Patch(color=plt.get_cmap()(k / 2)) for k in range(3)]
figure.legend(colours, names, loc="outside lower center", ncols=3, frameon=False)

# %%
# How long labels wait, and how often they then differ from those of the whole sequence.
LatencyAccuracyDisplay.from_estimator(model, X[test], strategies=["step", "chunk"]).plot()
plt.show()
