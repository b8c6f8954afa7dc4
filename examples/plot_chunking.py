"""
Chunking: a complete example
============================

Train a conditional random field on token columns, measure it, inspect it, save it and load it
again. If the environment variable ``SKLSEQ_DATA`` names a folder that contains ``conll2000/``, the
task is that of CoNLL-2000: to find noun phrases, verb phrases and so on in newspaper text.
Otherwise it is to find names, telephone numbers and addresses in generated documents.
"""

# %%
# Data: a dict of columns and a list of labels for each sequence.
import os
from pathlib import Path
from time import perf_counter

import joblib
import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger
from sklseq.datasets import make_contacts, read_conll
from sklseq.display import TransitionsDisplay
from sklseq.features import TemplateFeatures
from sklseq.metrics import span_f1, span_report, token_accuracy

folder = Path(os.environ.get("SKLSEQ_DATA", "")) / "conll2000"
on_real_data = "SKLSEQ_DATA" in os.environ and folder.is_dir()
if on_real_data:
    X_train, y_train = read_conll(folder / "train.txt.gz", columns=("w", "pos"))
    X_test, y_test = read_conll(folder / "test.txt.gz", columns=("w", "pos"))
    templates = None  # the 19 templates of CRFsuite's chunking example
else:
    X, y = make_contacts(250, random_state=0)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=0)
    words = [f"w[{k}]" for k in range(-2, 3)]
    templates = [*words, "w[-1]|w[0]", "w[0]|w[1]", "newline[0]", "newline[1]"]

n_train, n_test = (sum(map(len, labels)) for labels in (y_train, y_test))
print(f"Data       {'CoNLL-2000' if on_real_data else 'generated contact documents'}")
print(f"Train      {len(y_train):,} sequences, {n_train:,} tokens")
print(f"Test       {len(y_test):,} sequences, {n_test:,} tokens")

# %%
# Train: templates turn columns into attributes. The tagger learns a weight for each attribute and
# label and for each pair of neighbouring labels.
model = make_pipeline(
    TemplateFeatures(templates, columns=None if templates else ["w", "pos"], n_jobs=-1),
    CRFTagger(l2=1.0 if on_real_data else 0.1, n_jobs=-1, tol=1e-3),
)
began = perf_counter()
model.fit(X_train, y_train)
seconds = perf_counter() - began
features, tagger = model[0], model[-1]
print(
    f"Training   {seconds:.1f} s, {tagger.n_iter_} iterations, objective {tagger.objective_:,.1f}"
)
print(f"Weights    {tagger.coef_.shape[0]:,} attributes × {len(tagger.classes_)} labels")

# %%
# Measure.
began = perf_counter()
y_pred = model.predict(X_test)
seconds = perf_counter() - began
print(f"Tagging    {n_test / seconds:,.0f} tokens/s from token columns")
print(f"Accuracy   {token_accuracy(y_test, y_pred):.4f} of the tokens")
if on_real_data:
    print(f"Span F1    {100 * span_f1(y_test, y_pred):.2f}\n")
    print(span_report(y_test, y_pred))
else:
    true, predicted = np.concatenate(y_test), np.concatenate(y_pred)
    print(f"\n{'label':<16}{'precision':>10}{'recall':>10}{'support':>10}")
    for label in tagger.classes_:
        right = np.sum((true == label) & (predicted == label))
        support, found = np.sum(true == label), np.sum(predicted == label)
        row = f"{right / max(found, 1):>10.2f}{right / max(support, 1):>10.2f}{support:>10}"
        print(f"{label:<16}{row}")

# %%
# Inspect the weights. The extractor gives the names of the attributes.
names = features.get_feature_names_out()
print("\nStrongest transitions")
for weight, before, after in tagger.top_transitions(8):
    print(f"{weight:8.3f}  {before} → {after}")
print("\nStrongest features")
for weight, label, name in tagger.top_features(8, feature_names=names):
    print(f"{weight:8.3f}  {label:<12} {name}")

# %%
# Save and load the model. The predictions are the same.
output = (Path(__file__).parent if "__file__" in globals() else Path()) / "output"
output.mkdir(exist_ok=True)
joblib.dump(model, output / "chunking.joblib", compress=1)
again = joblib.load(output / "chunking.joblib").predict(X_test)
assert again == y_pred
print(f"\nSaved, loaded, same answers: {output.name}/chunking.joblib")

# %%
# Weights of transitions between labels. The most frequent labels come first.
frequent = dict(zip(*np.unique(np.concatenate(y_train), return_counts=True)))
labels = sorted(tagger.classes_, key=lambda label: -frequent[label])
figure, axes = plt.subplots(figsize=(9, 7.5), layout="constrained")
TransitionsDisplay.from_estimator(model, labels=labels).plot(axes, values=False)
figure.savefig(output / "transitions.png", dpi=120)
print(f"Transition matrix drawn:     {output.name}/transitions.png")
