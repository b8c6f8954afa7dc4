"""
Fields of references, as segments
=================================

A reference is a row of fields: authors, a title, a journal, pages. A tagger decides token by token
and can only look at tokens; a segmenter scores whole fields. It can ask how long a field is, what
it looks like as a whole, and whether a list of journals has *something like it*: questions that
no single token answers. This page finds the fields of invented references with both, on equal
features of tokens, and looks at what the segment features are worth.
"""

# %%
# References without anybody's data, and incomplete lists of the authors and journals in them.
# Titles are made of the same words as names of journals.
import os
from time import perf_counter

import matplotlib.pyplot as plt
from sklearn.pipeline import make_pipeline, make_union

from sklseq import CRFTagger, SemiCRFSegmenter
from sklseq.datasets import make_citations
from sklseq.display import SegmentationDisplay
from sklseq.features import LexiconFeatures, SegmentFeatures, TokenFeatures, WindowFeatures
from sklseq.metrics import span_f1

n_train, n_test = 60, int(os.environ.get("N_REFERENCES", "300"))
X, y, lexicons = make_citations(n_train + n_test, random_state=0, return_lexicons=True)
train, test = (X[:n_train], y[:n_train]), (X[n_train:], y[n_train:])
print(" ".join(X[0]))
print(y[0])
print({name: entries[:3] for name, entries in lexicons.items()})

# %%
# Features of tokens are the same for all: letters, and whether a token stands inside an entry of
# the lists, of each token and its neighbours. Segments have them at their start, at their end and
# inside. The second segmenter also knows the lengths of fields and how similar they are to the
# most similar entries, as wholes.
tokens = WindowFeatures(make_union(TokenFeatures(), LexiconFeatures(lexicons)), before=1, after=1)
models = {
    "tokens": make_pipeline(tokens, CRFTagger(l2=0.1, all_possible_states=True)),
    "segments": make_pipeline(
        SegmentFeatures(tokens, before=0, after=0, length=False),
        SemiCRFSegmenter(l2=0.1),
    ),
    "segments, lengths and lexicons": make_pipeline(
        SegmentFeatures(tokens, before=0, after=0, max_length=12, lexicons=lexicons),
        SemiCRFSegmenter(l2=0.1),
    ),
}


def labels_of(model, X):
    segmenter = model[-1]
    if not hasattr(segmenter, "predict_labels"):
        return model.predict(X)
    return segmenter.predict_labels(model[:-1].transform(X))


print(f"{'':<32}{'span F1':>8}{'journal':>9}{'seconds':>9}")
for name, model in models.items():
    began = perf_counter()
    model.fit(*train)
    predicted = labels_of(model, test[0])
    seconds = perf_counter() - began
    journals = span_f1(test[1], predicted, labels=["journal"])
    print(f"{name:<32}{span_f1(test[1], predicted):8.3f}{journals:9.3f}{seconds:9.2f}")

# %%
# A feature of tokens is stored once for all segments it is a feature of: "contains *Letters*" is
# one number, however many segments contain that token. That is what makes segments affordable.
features = models["segments, lengths and lexicons"][0]
print(f"{features.n_firings_} features stored instead of ", end="")
print(f"{features.n_firings_ * features.firing_ratio_:.0f} (1 : {features.firing_ratio_:.0f})")

# %%
# The fields of some references, two of them right and four with an error. The bars below the text
# are the true ones; wrong segments have a broken border. In a notebook, ``display`` at the end of a
# cell shows this as text to select.
best = models["segments, lengths and lexicons"]
display = SegmentationDisplay.from_estimator(best, *test)
errors = [s for s in range(n_test) if display.segments[s] != display.true[s]]
shown = [0, 1, *errors[:4]]
display = SegmentationDisplay.from_estimator(
    best, [test[0][s] for s in shown], [test[1][s] for s in shown]
)
display.plot()
print(display.as_text())

# %%
# How well each field is found, the most frequent one first: with features of tokens alone ...
SegmentationDisplay.from_estimator(models["tokens"], *test).plot_f1()
plt.title("tokens", pad=30)

# %%
# ... and with features of segments.
SegmentationDisplay.from_estimator(best, *test).plot_f1()
plt.title("segments, lengths and lexicons", pad=30)
plt.show()
