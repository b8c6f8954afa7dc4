"""
A first model, from tokens to marked text
=========================================

Which fields does a reference have, and how certain is the model? This page trains a conditional
random field on generated references in a second, measures it on references that it has not seen,
and shows three views of its answers: the marked text, the probabilities of the labels of each
token, and what the model learned about neighbouring labels.
"""

# %%
# Data: a list of tokens and a list of labels for each reference.
import matplotlib.pyplot as plt
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger
from sklseq.datasets import make_citations
from sklseq.display import MarginalsDisplay, SpansDisplay, TransitionsDisplay
from sklseq.features import TokenFeatures, WindowFeatures
from sklseq.metrics import span_report

X, y = make_citations(300, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
print(list(zip(X_train[0], y_train[0])))

# %%
# The features are the letters of each token and of its neighbours. ``constraints="iob2"`` allows
# valid fields only.
model = make_pipeline(WindowFeatures(TokenFeatures()), CRFTagger(constraints="iob2"))
model.fit(X_train, y_train)
print(span_report(y_test, model.predict(X_test)))

# %%
# The stronger a colour, the more probable the field. Look at the faint ones first.
SpansDisplay.from_estimator(model, X_test[:6])

# %%
# The second reference, token by token: the title may end later, since "Acoustics" could be a word
# of the title or the name of a journal.
MarginalsDisplay.from_estimator(model, X_test[1], y_test[1]).plot()

# %%
# The weights of transitions between fields.
labels = [f"{part}-{field}" for field in ("author", "title", "journal", "pages") for part in "BI"]
TransitionsDisplay.from_estimator(model, labels=["O", *labels]).plot()
plt.show()
