"""
Fields of references, as segments
=================================

A bibliographic reference is a sequence of fields: authors, a title, a journal, pages. A tagger
labels single tokens; a segmenter scores whole fields. Its features can be the length of a field,
the shape of the whole field, and its similarity to the entries of a list of journals. This page
finds the fields of generated references with both, using the same features of tokens, and measures
the gain from features of segments.
"""

# %%
# Generated references, and incomplete lists of the authors and journals in them. Titles consist
# of the same words as names of journals.
import os
from time import perf_counter

import matplotlib.pyplot as plt
from sklearn.pipeline import make_pipeline, make_union

from sklseq import CRFTagger, SegmentReranker, SemiCRFSegmenter
from sklseq.datasets import make_citations
from sklseq.display import SegmentationDisplay
from sklseq.features import LexiconFeatures, SegmentFeatures, TokenFeatures, WindowFeatures
from sklseq.inspection import last_step
from sklseq.metrics import span_f1

n_train, n_test = 60, int(os.environ.get("N_REFERENCES", "300"))
X, y, lexicons = make_citations(n_train + n_test, random_state=0, return_lexicons=True)
train, test = (X[:n_train], y[:n_train]), (X[n_train:], y[n_train:])
print(" ".join(X[0]))
print(y[0])
print({name: entries[:3] for name, entries in lexicons.items()})

# %%
# The features of tokens are the same for all models: letters, and whether a token is part of an
# entry of the lists. The tagger has those of each token and of its neighbours. The segmenters have
# those of the first and the last token of a field, of the tokens before and after it, and of all
# tokens inside, and the length of the field. The second segmenter also has the similarity of the
# whole field to the most similar entries, and the third is trained with a margin. The last model
# chooses among the 25 best segmentations of the third, by which fields there are in which order.
tokens = make_union(TokenFeatures(), LexiconFeatures(lexicons))
window = WindowFeatures(tokens, before=1, after=1, min_count=2)
whole = SegmentFeatures(tokens, min_count=2, max_length=12, lexicons=lexicons)
models = {
    "tokens": make_pipeline(window, CRFTagger(l2=0.1, all_possible_states=True)),
    "segments": make_pipeline(
        SegmentFeatures(tokens, min_count=2, max_length=12), SemiCRFSegmenter()
    ),
    "segments, lexicons": make_pipeline(whole, SemiCRFSegmenter()),
    "segments, lexicons, margin": make_pipeline(whole, SemiCRFSegmenter(loss="softmax-margin")),
}
models["segments, reranked"] = SegmentReranker(models["segments, lexicons, margin"], cv=3)


def labels_of(model, X):
    last, rows = last_step(model, X)
    return getattr(last, "predict_labels", last.predict)(rows)


print(f"{'':<32}{'span F1':>8}{'journal':>9}{'seconds':>9}")
for name, model in models.items():
    began = perf_counter()
    model.fit(*train)
    predicted = labels_of(model, test[0])
    seconds = perf_counter() - began
    journals = span_f1(test[1], predicted, labels=["journal"])
    print(f"{name:<32}{span_f1(test[1], predicted):8.3f}{journals:9.3f}{seconds:9.2f}")

# %%
# A feature of a token is stored once for all segments that have it: "contains *Letters*" is one
# number, however many segments contain that token. So training takes little more time than with a
# linear chain.
features = models["segments, lexicons, margin"][0]
n_stored, ratio = features.n_potentials_, features.compression_ratio_
print(f"{n_stored} features stored instead of {n_stored * ratio:.0f} (1 : {ratio:.0f})")

# %%
# The fields of some references: the first two, and four with an error. The bars below the text are
# the true fields; wrong segments have a dashed border. In a notebook, ``display`` at the end of a
# cell shows this as text that can be selected.
best = models["segments, lexicons, margin"]
display = SegmentationDisplay.from_estimator(best, *test)
errors = [s for s in range(n_test) if display.segments[s] != display.true[s]]
shown = [0, 1, *errors[:4]]
display = SegmentationDisplay.from_estimator(
    best, [test[0][s] for s in shown], [test[1][s] for s in shown]
)
display.plot()
print(display.as_text())

# %%
# F1 of each field, the most frequent one first, of the tagger.
SegmentationDisplay.from_estimator(models["tokens"], *test).plot_f1()
plt.title("tokens", pad=30)

# %%
# The same for the segmenter with features of segments.
SegmentationDisplay.from_estimator(best, *test).plot_f1()
plt.title("segments, lexicons, margin", pad=30)
plt.show()
