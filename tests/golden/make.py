"""Store small trained models that every later version must load: python tests/golden/make.py NAME.

A file that exists is never written again: that would defeat its purpose. NAME is the version that
trains, as "0.1".
"""

import json
import pickle
import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from sklseq import CRFTagger, HMSVMTagger, OnlineDecoder, SemiCRFSegmenter, ZScoreTagger
from sklseq.features import (
    DictFeatures,
    LexiconFeatures,
    PerToken,
    SegmentFeatures,
    TemplateFeatures,
    TokenFeatures,
    WindowFeatures,
)

HERE = Path(__file__).resolve().parent
WORDS = [["Anna", "met", "Berta", "Lee", "today"], [], ["Today", "Berta", "slept"], ["Lee"]]
LABELS = [["B-P", "O", "B-P", "I-P", "O"], [], ["O", "B-P", "O"], ["B-P"]]
COLUMNS = [{"w": x, "n": [str(len(w)) for w in x]} for x in WORDS]


def window():
    tokens = TokenFeatures(columns="w", prefixes=0, suffixes=[2], shape=False, flags=["title"])
    lexicon = LexiconFeatures({"name": ["Berta Lee", "Anna"]}, columns="w")
    lengths = PerToken(OneHotEncoder(handle_unknown="ignore"), columns=["n"])
    union = FeatureUnion([("w", tokens), ("x", lexicon), ("n", lengths)])
    return WindowFeatures(union, conjoin=["w__w.lower[-1]|w__w.title[0]"], bias=True)


def models():
    """(name, model, X) of every kind of extractor."""
    dicts = [[{"w": w, "title": w.istitle(), "n": float(len(w))} for w in x] for x in WORDS]
    rows = [np.array([[len(w), float(w.istitle())] for w in x]).reshape(-1, 2) for x in WORDS]
    crf = CRFTagger(l2=0.1, max_iter=30)
    yield "dicts", CRFTagger(l2=0.1, max_iter=30, constraints="iob2"), dicts
    yield "pruned", CRFTagger(l1=0.2, max_iter=30), dicts
    yield "dictfeatures", make_pipeline(DictFeatures(min_count=2), crf), dicts
    templates = TemplateFeatures(["w[0]", "w[-1]|n[0]|n[1]"], columns=["w", "n"], boundary="mark")
    yield "template", make_pipeline(templates, crf), COLUMNS
    yield "window", make_pipeline(window(), crf), COLUMNS
    hashed = WindowFeatures(TokenFeatures(columns="w", n_features=64), n_features=64)
    yield "hashed", make_pipeline(hashed, crf), COLUMNS
    yield "segmenter", SemiCRFSegmenter(l2=0.1, max_iter=30), dicts
    segments = SegmentFeatures(TokenFeatures(prefixes=0, suffixes=0), first=1, max_length=3)
    yield "segments", make_pipeline(segments, SemiCRFSegmenter(l2=0.1, max_iter=30)), WORDS
    yield "hmsvm", HMSVMTagger(random_state=0), dicts
    yield "zscore", ZScoreTagger(), dicts
    yield "online", OnlineDecoder(CRFTagger(l2=0.1, max_iter=30)), dicts
    dense = PerToken(StandardScaler())
    yield "dense", make_pipeline(dense, WindowFeatures(before=1, after=0), crf), rows


def as_plain(X):
    return [x.tolist() if isinstance(x, np.ndarray) else x for x in X]


def store(name, model, X, version):
    path = HERE / f"{version}-{name}.pkl"
    if path.exists():
        return
    model.fit(X, LABELS)
    if name == "pruned":
        model.sparsify().prune(0.01)
    path.write_bytes(pickle.dumps(model, protocol=5))
    truth = {
        "X": as_plain(X),
        "labels": model.predict(X),
    }
    if hasattr(model, "predict_proba"):
        truth["proba"] = [p.tolist() for p in model.predict_proba(X)]
    text = json.dumps(truth, separators=(",", ":"))
    path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name, model, X in models():
        store(name, model, X, sys.argv[1])
