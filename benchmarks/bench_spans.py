"""Predicted spans with probabilities against plain labels: ``python benchmarks/bench_spans.py``.

Processor time, best of nine by turns; US addresses under SKLSEQ_DATA, or generated citations.
"""

import sys

from _common import by_turns, folder, header, row
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger
from sklseq.datasets import make_citations, read_conll
from sklseq.features import TokenFeatures
from sklseq.inspection import extract, spans

ROUNDS = 9


def corpus(quick):
    root = folder("us50-addresses")
    if quick or root is None:
        return make_citations(60 if quick else 700, random_state=0)
    parts = [read_conll(root / f"{part}.tsv.gz", separator="\t") for part in ("train", "test")]
    X, y = (first + second for first, second in zip(*parts))
    return [x["c0"] for x in X], y


def main(quick=False):
    X, y = corpus(quick)
    model = make_pipeline(TokenFeatures(), CRFTagger(l2=0.1)).fit(X, y)
    rows, tagger = model[:-1].transform(X), model[-1]
    tables = {
        "features": {
            "predict": lambda: tagger.predict(rows),
            "predict_spans": lambda: tagger.predict_spans(rows),
            "predict_segment_proba": lambda: tagger.predict_segment_proba(rows),
        },
        "tokens": {
            "predict": lambda: model.predict(X),
            "inspection.spans": lambda: spans(model, X),
            "inspection.extract": lambda: extract(model, X),
        },
    }
    print(f"{len(X)} sequences, {len(tagger.classes_)} labels")
    for of, works in tables.items():
        header(of, "ms", "times predict")
        seconds = by_turns(works.values(), ROUNDS).min(axis=0)
        for name, s in zip(works, seconds):
            row(name, f"{1e3 * s:.2f}", f"{s / seconds[0]:.2f}")


if __name__ == "__main__":
    main("--quick" in sys.argv)
