"""Table of forms of input and estimators: each cell is run; ``main()`` writes docs/inputs.rst."""

import re
import warnings
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.preprocessing import OneHotEncoder

from sklseq import (
    CRFTagger,
    HMSVMTagger,
    OnlineDecoder,
    RowBlocks,
    SemiCRFSegmenter,
    Sequences,
    ZScoreTagger,
)
from sklseq.datasets import from_frame
from sklseq.features import (
    DictFeatures,
    LexiconFeatures,
    PerToken,
    SegmentFeatures,
    TemplateFeatures,
    TokenFeatures,
    WindowFeatures,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "inputs.rst"
WORDS = [["Ann", "met", "Bob"], ["she", "left"], ["Ann", "left"]]
LABELS = [["B-PER", "O", "B-PER"], ["O", "O"], ["B-PER", "O"]]
NUMBERS = [np.arange(2.0 * len(x)).reshape(-1, 2) + s for s, x in enumerate(WORDS)]
OFFSETS = [0, 3, 5, 7]


class Table(dict):
    """What tables of pandas, polars and pyarrow have in common."""

    columns = property(list)


def columns_of(x):
    return {"w": x, "pos": [w[0] for w in x]}


def long_table(make=Table, numbers=False):
    sentence = np.repeat([0, 1, 2], np.diff(OFFSETS)).tolist()
    words = [w for x in WORDS for w in x]
    cells = {"x": np.arange(7.0).tolist()} if numbers else {"w": words}
    return make({"sentence": sentence, **cells})


def forms(make=Table):
    """X in each form, with its name on the page."""
    records = [[dict(zip(("w", "pos"), (w, w[0]))) for w in x] for x in WORDS]
    return {
        "lists of strings": WORDS,
        "lists of tuples of strings": [[(w, w[0]) for w in x] for x in WORDS],
        "lists of dicts of strings": records,
        "lists of dicts of strings and numbers": [
            [{**item, "size": 0.5} for item in x] for x in records
        ],
        "lists of lists of attributes": [[[w, w[0]] for w in x] for x in WORDS],
        "dicts of columns": [columns_of(x) for x in WORDS],
        "tables of tokens": [make(columns_of(x)) for x in WORDS],
        "dicts of columns of numbers": [{"x": x[:, 0], "v": x} for x in NUMBERS],
        "tables of numbers": [make({"a": x[:, 0], "b": x[:, 1]}) for x in NUMBERS],
        "one long table": long_table(make),
        "``from_frame`` of tokens": from_frame(long_table(make), "sentence")[0],
        "``from_frame`` of numbers": from_frame(long_table(make, True), "sentence")[0],
        "2-D arrays": NUMBERS,
        "SciPy's CSR matrices": list(map(sparse.csr_matrix, NUMBERS)),
        "``Sequences``": Sequences(np.concatenate(NUMBERS), OFFSETS),
        "``RowBlocks``": [RowBlocks([x]) for x in NUMBERS],
    }


ESTIMATORS = {
    "`TokenFeatures`": [TokenFeatures(columns=[0]), WindowFeatures(TokenFeatures(columns=[0]))],
    "`TemplateFeatures`": [TemplateFeatures("U:%x[0,0]")],
    "`LexiconFeatures`": [LexiconFeatures({"names": ["Ann"]}, columns=[0])],
    "`SegmentFeatures`": [SegmentFeatures(TokenFeatures(columns=[0]), max_length=2)],
    "`DictFeatures`": [DictFeatures()],
    "`PerToken`": [PerToken()],
    "`PerToken`, encoder": [PerToken(OneHotEncoder())],
    "`WindowFeatures`": [WindowFeatures()],
    "`CRFTagger`": [CRFTagger()],
    "other taggers": [HMSVMTagger(), ZScoreTagger()],
    "`OnlineDecoder`": [OnlineDecoder(CRFTagger())],
    "`SemiCRFSegmenter`": [SemiCRFSegmenter()],
}


def outcome(estimators, X):
    """None if ``fit`` and its answer work, else the error; the same for all of the estimators."""
    found = {one_outcome(clone(estimator), X) for estimator in estimators}
    assert len(found) == 1, found
    return found.pop()


def one_outcome(estimator, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            estimator.fit(X, LABELS)
            answer = getattr(estimator, "transform", None) or estimator.predict
            n = len(answer(X))
        except (ValueError, TypeError) as error:
            return str(error)
    assert n == len(WORDS)
    return None


HEAD = """Inputs
======

This page is generated: ``python -m tests.project.inputs_table`` runs every cell, ``fit`` with
``transform`` or ``predict``. ``yes`` means that they work; a number stands for the error below. A
table is one of pandas, polars or pyarrow; :func:`~sklseq.datasets.from_frame` cuts a long one into
sequences. A Series is read as a list: of sequences, or of the tokens of a sequence. `PerToken`
without a transformer leaves numbers as they are; with an encoder it reads strings too.
`WindowFeatures` here has no extractor inside; with one, it reads what that reads. A Pipeline reads
what its first step reads.

"""

# What differs between errors of one meaning.
DETAILS = {r"columns \['.*?'\]": "columns [...]", r"column '\w+', is": "column 'x', is",
           r"got array\(.*?\)": "got array([...])", "got (dict|Table)": "got Table",
           "^Sparse data was passed.*": "Sparse data was passed: use dense."}  # fmt: skip


def general(error):
    for detail, instead in DETAILS.items():
        error = re.sub(detail, instead, error)
    return error


def page():
    """The text of the page."""
    notes, lines = {}, [HEAD, ".. list-table::", "    :header-rows: 1", ""]
    lines += row_of(["sequences", *ESTIMATORS])
    for form, X in forms().items():
        cells = []
        for estimators in ESTIMATORS.values():
            error = outcome(estimators, X)
            number = None if error is None else notes.setdefault(general(error), len(notes) + 1)
            cells.append("yes" if number is None else str(number))
        lines += row_of([form, *cells])
    lines += ["", "The errors:", ""]
    lines += [f"{number}. ``{error}``" for error, number in notes.items()]
    return "\n".join(lines).replace(HEAD + "\n", HEAD) + "\n"


def row_of(cells):
    return [f"    {'* -' if k == 0 else '  -'} {cell}" for k, cell in enumerate(cells)]


def main():
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
