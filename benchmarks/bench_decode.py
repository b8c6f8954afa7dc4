"""Best paths against the most probable label of each row: ``python benchmarks/bench_decode.py``.

For each corpus and penalty one model: its quality with both values of ``decode``, and processor
time of ``predict`` (best of five, by turns). The first half of the shuffled sequences, or 3,000, is
trained on, and at most 1,000 others are tested on. Corpora are found under SKLSEQ_DATA.
"""

import sys
from time import process_time

from _common import NoData, header, row
from bench_which import CORPORA, data

from sklseq import CRFTagger
from sklseq.metrics import span_f1, token_accuracy

NAMES = ("protein-cb513", "ocr-letters", "gesture-phase", "ud-english-ewt", "conll2002")
L2S, ROUNDS = (0.1, 1.0), 5


def compare(name, n):
    X, y, Z, wanted = data(name, n)
    spans = CORPORA[name][1] is span_f1
    for l2 in L2S:
        tagger = CRFTagger(l2=l2).fit(X, y)
        found, seconds = {}, {"path": [], "marginal": []}
        for _ in range(ROUNDS):
            for decode, times in seconds.items():
                begun = process_time()
                found[decode] = tagger.set_params(decode=decode).predict(Z)
                times.append(process_time() - begun)
        ratio = min(seconds["marginal"]) / min(seconds["path"])
        for what, measure in (("accuracy", token_accuracy), ("span F1", span_f1))[: 1 + spans]:
            cells = (f"{100 * measure(wanted, labels):.1f}" for labels in found.values())
            row(name, f"{l2:g}", what, *cells, f"{ratio:.1f}")


def main(quick=False):
    header("corpus", "l2", "measure", "path", "marginal", "time of marginal / path")
    for name in NAMES:
        try:
            compare(name, 100 if quick else 3000)
        except NoData as missing:
            print(missing)


if __name__ == "__main__":
    main("--quick" in sys.argv)
