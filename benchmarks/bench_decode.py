"""Best paths against the most probable label of each row: ``python benchmarks/bench_decode.py``.

For each corpus and penalty one model: its quality with both values of ``decode``, and processor
time of ``predict`` (best of five, by turns). The first half of the shuffled sequences, or 3,000, is
trained on, and at most 1,000 others are tested on. Corpora are found under SKLSEQ_DATA.
"""

import sys
from copy import copy
from functools import partial

from _common import by_turns, each_with_data, header, row
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
        taggers = [tagger, copy(tagger).set_params(decode="marginal")]
        times = by_turns([partial(one.predict, Z) for one in taggers], ROUNDS).min(axis=0)
        ratio = times[1] / times[0]
        for what, measure in (("accuracy", token_accuracy), ("span F1", span_f1))[: 1 + spans]:
            cells = (f"{100 * measure(wanted, one.predict(Z)):.1f}" for one in taggers)
            row(name, f"{l2:g}", what, *cells, f"{ratio:.1f}")


def main(quick=False):
    header("corpus", "l2", "measure", "path", "marginal", "time of marginal / path")
    each_with_data(compare, NAMES, 100 if quick else 3000)


if __name__ == "__main__":
    main("--quick" in sys.argv)
