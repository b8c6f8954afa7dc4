"""
Error analysis of named entities
================================

Which entities does a model confuse, and why? This page looks at the confused types, at the wrong
entities of which the model is most certain, and at the features that decided one of them. The task
is to find the fields of generated references. If the environment variable ``SKLSEQ_DATA`` names a
folder that contains ``conll2002/``, the task is to find names in Spanish newspaper text.
"""

# %%
# Data, and a model in a few seconds.
import os
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, labels_to_segments
from sklseq.datasets import make_citations, read_conll
from sklseq.display import SpanConfusionDisplay
from sklseq.features import TokenFeatures, WindowFeatures
from sklseq.inspection import explain, spans
from sklseq.metrics import span_report

folder = Path(os.environ.get("SKLSEQ_DATA", "no folder")) / "conll2002"
n = int(os.environ.get("N_SENTENCES", "8000"))
if folder.is_dir():
    X, y = read_conll(folder / "esp.train.gz", columns=["w", "pos"])
    X, y, name, fraction = [x["w"] for x in X[:n]], y[:n], "CoNLL-2002, Spanish", 0.75
else:
    (X, y), name, fraction = make_citations(400, random_state=0), "generated references", 0.1
X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=fraction, random_state=0)
print(f"{name}: {len(X_train)} sequences to train on, {len(X_test)} to test on")

model = make_pipeline(WindowFeatures(TokenFeatures()), CRFTagger(l2=0.3, constraints="iob2"))
model.fit(X_train, y_train)
y_pred = model.predict(X_test)
print(span_report(y_test, y_pred))

# %%
# Rows are true types, columns predicted ones. "Other bounds" counts entities that overlap one with
# other bounds; "nothing" counts missed and invented entities.
SpanConfusionDisplay.from_predictions(y_test, y_pred).plot()

# %%
# Errors of which the model is most certain. In a corpus, some are errors of annotation.
wrong = []
for words, labels, found in zip(X_test, y_test, spans(model, X_test)):
    true = set(labels_to_segments(labels))
    for start, stop, label, probability in found:
        if (start, stop, label) not in true:
            around = " ".join(words[max(0, start - 4) : stop + 4])
            wrong.append((probability, label, " ".join(words[start:stop]), around, words, start))
wrong.sort(key=lambda error: -error[0])
for probability, label, text, around, *_ in wrong[:8]:
    print(f"{probability:.2f} {label:9} {text:28} ... {around} ...")

# %%
# The features that decided the label of its first token: for (+) and against (-) it.
*_, words, start = wrong[0]
label, probability, contributions = explain(model, words)[start]
print(f"{words[start]}: {label}, {probability:.3f}")
for feature, score in contributions[:8]:
    print(f"{score:6.2f}  {feature}")

# %%
# A threshold on the probability trades recall for precision.
thresholds, precision, recall = [k / 20 for k in range(20)], [], []
truth = [set(labels_to_segments(labels)) for labels in y_test]
found = [[(tuple(s)[:3], s.probability) for s in one] for one in spans(model, X_test)]
for threshold in thresholds:
    kept = [{s for s, probability in one if probability >= threshold} for one in found]
    right = sum(len(a & b) for a, b in zip(kept, truth))
    precision.append(right / max(1, sum(map(len, kept))))
    recall.append(right / sum(map(len, truth)))
figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
ax.plot(thresholds, precision, label="precision")
ax.plot(thresholds, recall, "--", label="recall")
ax.set(xlabel="least probability of an entity", ylabel="fraction", title=name)
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
plt.show()
