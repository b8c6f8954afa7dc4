"""The readers of tables, data sets and documents, on objects of the packages themselves."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger
from sklseq.datasets import from_docs, from_rows
from sklseq.features import TokenFeatures

pytestmark = pytest.mark.filterwarnings("ignore")
WORDS = [["Ann", "Lee", "sings"], ["in", "New", "York"], ["it", "rains"]]
NAMES = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
CODES = [[1, 2, 0], [0, 3, 4], [0, 0]]
LABELS = [[NAMES[code] for code in codes] for codes in CODES]


def test_pyarrow_tables_of_lists():
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"tokens": WORDS, "tags": LABELS})
    for rows in (table, arrow.concat_tables([table.slice(0, 1), table.slice(1)])):
        assert from_rows(rows, "tags") == ([{"tokens": words} for words in WORDS], LABELS)
    words = arrow.array(["a", "b", "a"]).dictionary_encode()
    rows = TokenFeatures(columns="w").fit_transform([arrow.table({"w": words})])
    assert rows.shape == (1, rows.rows.shape[1])
    assert len(rows[0].toarray()) == 3


@pytest.mark.parametrize("form", ["List", "Sequence"])
def test_data_sets_of_hugging_face(form):
    datasets = pytest.importorskip("datasets")
    make = getattr(datasets, form, None) or datasets.Sequence
    features = datasets.Features(
        tokens=make(datasets.Value("string")), tags=make(datasets.ClassLabel(names=NAMES))
    )
    rows = datasets.Dataset.from_dict({"tokens": WORDS, "tags": CODES}, features=features)
    X = [{"tokens": words} for words in WORDS]
    parts = [rows, rows.to_iterable_dataset(), rows.with_format("numpy"), rows.with_format("arrow")]
    for data in [*parts, rows.with_format("pandas"), rows.select([0, 1, 2])]:
        assert from_rows(data, "tags") == (X, LABELS)
    for data in (rows.to_pandas(), rows.to_polars(), list(rows), rows[:]):  # without class names
        assert [list(map(int, codes)) for codes in from_rows(data, "tags")[1]] == CODES
    model = make_pipeline(TokenFeatures(), CRFTagger()).fit(rows["tokens"], LABELS)
    assert len(model.predict(rows["tokens"])) == len(WORDS)


def test_documents_of_spacy():
    spacy = pytest.importorskip("spacy")
    from spacy.tokens import Doc, Span

    nlp = spacy.blank("en")
    docs = [Doc(nlp.vocab, words=words) for words in WORDS]
    docs[0].ents = [Span(docs[0], 0, 2, label="PER")]
    docs[1].ents = [Span(docs[1], 1, 3, label="LOC")]
    X, y = from_docs(docs, "ent", columns=["text", "shape_"])
    assert y == LABELS
    assert X[1] == {"text": WORDS[1], "shape_": ["xx", "Xxx", "Xxxx"]}
    assert from_docs([docs[0][1:]], "ent") == ([{"text": WORDS[0][1:]}], [["I-PER", "O"]])
    model = make_pipeline(TokenFeatures(columns="text"), CRFTagger(l2=0.01)).fit(X, y)
    from sklseq.inspection import spans

    for doc, found in zip(docs, spans(model, X)):
        expected = [(ent.start, ent.end, ent.label_) for ent in doc.ents]
        doc.ents = [Span(doc, start, stop, label=type_) for start, stop, type_, *_ in found]
        assert [(ent.start, ent.end, ent.label_) for ent in doc.ents] == expected
    with pytest.raises(TypeError, match="To read one document, wrap it in a list"):
        from_docs(docs[0])
    with pytest.raises(ValueError, match="document 0 has no attribute 'lemmata'"):
        from_docs(docs, "lemmata")
    assert np.shape(from_docs(docs[:1], columns=["vector"])[0][0]["vector"]) == (3, 0)
