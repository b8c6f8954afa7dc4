"""Input of a wrong kind or depth: one sentence says what it is, what is allowed and what to do."""

import traceback

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import OneHotEncoder

from sklseq import (
    CRFTagger,
    CRFTaggerCV,
    HMSVMTagger,
    OnlineDecoder,
    RowBlocks,
    SegmentReranker,
    SemiCRFSegmenter,
    Shards,
    ZScoreTagger,
    ZScoreTaggerCV,
)
from sklseq.datasets import read_conll, write_conll
from sklseq.display import (
    MarginalsDisplay,
    SegmentationDisplay,
    SpanConfusionDisplay,
    SpansDisplay,
)
from sklseq.features import (
    DictFeatures,
    PerToken,
    SegmentFeatures,
    TemplateFeatures,
    TokenFeatures,
    WindowFeatures,
)
from sklseq.inspection import explain
from sklseq.metrics import span_f1

DICTS = [[{"w": "the", "pos": "D"}, {"w": "dog", "pos": "N"}], [{"w": "it", "pos": "P"}]]
MAPPINGS = [{"w": ["the", "dog"], "pos": ["D", "N"]}, {"w": ["it"], "pos": ["P"]}]
ROWS = [[("the", "D"), ("dog", "N")], [("it", "P")]]
WORDS = [["the", "dog"], ["it"]]
NUMBERS = [np.eye(2), np.ones((1, 2))]
Y = [["D", "N"], ["P"]]


class Table:
    """What pandas and polars tables have in common."""

    columns = ("w", "pos")

    def __len__(self):
        return 2

    def __iter__(self):
        return iter(self.columns)


class Column(list):
    """A Series: its keys are no sequences."""

    def keys(self):
        return range(len(self))

    def to_list(self):
        return list(self)


# ------------------------------------------------------------------------------- PerToken


@pytest.mark.parametrize(
    "text", [TfidfVectorizer(analyzer="char"), make_pipeline(TfidfVectorizer(analyzer="char"))]
)
def test_text_vectorizer_reads_the_only_column(text):
    without = PerToken(text).fit(WORDS)
    named = PerToken(text, columns=0).fit(WORDS)
    assert (without.transform(WORDS).rows != named.transform(WORDS).rows).nnz == 0
    assert without.get_feature_names_out().tolist() == named.get_feature_names_out().tolist()


def test_encoder_reads_the_only_column():
    assert PerToken(OneHotEncoder()).fit_transform(WORDS).shape == (2, 3)


@pytest.mark.parametrize(
    ("X", "name"), [(DICTS, "pos"), (MAPPINGS, "pos"), (ROWS, 1), (ROWS, "c1")]
)
def test_number_of_dimensions_follows_columns(X, name):
    called = {1: "c1"}.get(name, name)
    encoder, text = OneHotEncoder(), TfidfVectorizer(analyzer="char")
    assert PerToken(encoder, columns=[name]).fit_transform(X).shape == (2, 3)
    assert PerToken(text, columns=name).fit_transform(X).shape == (2, 3)
    with pytest.raises(ValueError, match=rf"cannot read a list .* columns=\['{called}'\]"):
        PerToken(encoder, columns=name).fit(X)
    with pytest.raises(ValueError, match=rf"cannot read an array .* columns='{called}'"):
        PerToken(text, columns=[name]).fit(X)


@pytest.mark.parametrize("X", [DICTS, MAPPINGS, ROWS])
def test_column_transformer_takes_positions(X):
    def union(column):
        return PerToken(ColumnTransformer([("pos", OneHotEncoder(), [column])]))

    assert union(1).fit_transform(X).shape == (2, 3)
    with pytest.raises(ValueError, match="positions from 0 to 1, or join several PerToken"):
        union("pos").fit(X)


def test_own_errors_of_a_transformer_stay():
    with pytest.raises(ValueError, match=r"^empty vocabulary"):
        PerToken(TfidfVectorizer(), columns="w").fit([{"w": ["a", "b"]}])


# ------------------------------------------------------------------------------ containers


@pytest.mark.parametrize(
    ("extractor", "X"),
    [(CRFTagger(), NUMBERS), (TokenFeatures(), WORDS), (DictFeatures(), DICTS),
     (PerToken(), NUMBERS), (WindowFeatures(), NUMBERS), (TemplateFeatures(), WORDS)],
)  # fmt: skip
def test_column_of_a_table_is_a_list(extractor, X):
    extractor.fit(Column(X), Y)
    answer = getattr(extractor, "transform", None) or extractor.predict
    assert len(answer(Column(X))) == 2


@pytest.mark.parametrize("estimator", [CRFTagger(), WindowFeatures()])
@pytest.mark.parametrize("X", [[Table(), Table()], [{"w": ["a"]}, {"w": ["b"]}]])
def test_columns_need_an_extractor(estimator, X):
    with pytest.raises(ValueError, match=r"Sequence 0 of X .* Read columns by name: begin a Pipel"):
        estimator.fit(X, Y)


@pytest.mark.parametrize(
    "estimator",
    [CRFTagger(), TokenFeatures(), TemplateFeatures(), DictFeatures(), PerToken(),
     WindowFeatures()],
)  # fmt: skip
@pytest.mark.parametrize(
    ("X", "match"),
    [
        (Table(), "got Table, one table. Cut it into sequences by sklseq.datasets.from_frame"),
        ("the dog", r"got str. Cut a text into tokens: \[X.split\(\)\]"),
        ({"w": ["a"]}, "got dict. Wrap a single sequence in a list"),
        ({"the", "dog"}, "got set. Wrap a single sequence in a list"),
        (None, "got NoneType. Wrap"),
        (3, "got int. Wrap"),
        (np.eye(2), r"got one array of shape \(2, 2\). Wrap a single sequence in a list"),
    ],
)
def test_no_list_of_sequences(estimator, X, match):
    with pytest.raises(ValueError, match=match):
        estimator.fit(X, Y)


@pytest.mark.parametrize(
    ("estimator", "X", "one"),
    [
        (CRFTagger(), NUMBERS, NUMBERS[0]),
        (CRFTagger(), NUMBERS, NUMBERS[0].tolist()),
        (CRFTagger(), NUMBERS, list(NUMBERS[0])),
        (make_pipeline(TokenFeatures(), CRFTagger()), WORDS, WORDS[0]),
        (make_pipeline(DictFeatures(), CRFTagger()), DICTS, DICTS[0]),
        (make_pipeline(TokenFeatures(columns="w"), CRFTagger()), DICTS, DICTS[0]),
    ],
)
def test_one_sequence_is_to_be_wrapped(estimator, X, one):
    estimator.fit(X, Y)
    for method in (estimator.predict, lambda X: estimator.score(X, Y[0])):
        with pytest.raises(ValueError, match=r"(?i)wrap (it|a single sequence) in a list"):
            method(one)
    assert len(estimator.predict([one])) == 1


@pytest.mark.parametrize("first", [True, False])
def test_passthrough_is_named(first):
    parts = [("raw", "passthrough"), ("words", TokenFeatures())]
    with pytest.raises(ValueError, match=r"block [01] is a list. .*'passthrough' by PerToken\(\)"):
        FeatureUnion(parts if first else parts[::-1]).fit_transform(WORDS)


@pytest.mark.parametrize("X", [WORDS, ROWS, DICTS, MAPPINGS])
def test_columns_of_templates_are_names(X):
    with pytest.raises(ValueError, match=r"columns must be a list of column names.*; got 0"):
        TemplateFeatures(columns=[0, 1]).fit(X)


# ---------------------------------------------------------------------------------- blocks


@pytest.mark.parametrize("gradient", ["forward-backward", "checkpoint", "emp"])
@pytest.mark.parametrize("in_blocks", [True, False])
def test_weights_that_are_all_zero(gradient, in_blocks):
    X = [RowBlocks([x]) for x in NUMBERS] if in_blocks else NUMBERS
    with pytest.raises(ValueError, match=r"^sample_weight must have a positive entry"):
        CRFTagger(gradient=gradient).fit(X, Y, sample_weight=[0, 0])


@pytest.mark.parametrize("wrong", [2.5, 3, b"x"])
@pytest.mark.parametrize("sizes", [[5], [3, 2], [1, 1, 1, 1, 1], [4, 0, 1], [0, 4, 1]])
@pytest.mark.parametrize("row", [1, 3, 4])
def test_wrong_label_is_placed_in_its_sequence(wrong, sizes, row):
    labels = ["a", "b", "a", "b", "a"]
    labels[row:] = [wrong] * (5 - row)
    ends = np.cumsum(sizes)

    def blocks():
        return (labels[end - n : end] for n, end in zip(sizes, ends))

    X = [RowBlocks([np.eye(2)]), RowBlocks([np.ones((5, 2))])]
    for source in (blocks, labels):
        with pytest.raises(ValueError, match=f"Label {wrong!r} of y, at row {row} of sequence 1,"):
            CRFTagger(gradient="emp").fit(X, [["a", "b"], source])


# --------------------------------------------------------------------- every door, every form

WRONG_X = {
    "None": lambda: None,
    "int": lambda: 3,
    "string": lambda: "ab",
    "bytes": lambda: b"ab",
    "mapping": lambda: {0: np.eye(2), 1: np.ones((1, 2))},
    "set": lambda: {1, 2},
    "function": lambda: len,
    "iterator of numbers": lambda: iter([1, 2]),
    "range": lambda: range(2),
    "table": Table,
    "tables": lambda: [Table(), Table()],
    "one array": lambda: np.eye(2),
    "one list of rows": lambda: [[1.0, 0.0], [0.0, 1.0]],
    "too deep": lambda: [[[[1.0, 2.0]], [[1.0]]], [[[1.0, 2.0]]]],
    "integers as tokens": lambda: [[1, 2], [3]],
    "strings as sequences": lambda: ["ab", "c"],
    "Nones": lambda: [None, None],
    "Nones as rows": lambda: [[None, None], [None]],
    "complex": lambda: [np.eye(2) * 1j, np.ones((1, 2))],
    "dates": lambda: [np.zeros((2, 2), "M8[s]"), np.zeros((1, 2), "M8[s]")],
    "several forms": lambda: [np.eye(2), [["a"]]],
}


@pytest.mark.parametrize("x", [DICTS[0], WORDS[0], [("a", "b"), ("c", "d")]])
def test_generators_of_rows_are_named(x):
    fitted = CRFTagger().fit(DICTS, Y)
    with pytest.raises(ValueError, match="yields single rows, read them into a list"):
        fitted.predict([(row for row in x)])
    for extractor in (TokenFeatures(), TemplateFeatures("U:%x[0,0]")):
        with pytest.raises(ValueError, match=r"got generator\. Read it into a list"):
            extractor.fit([(row for row in x)])


def test_masked_tokens_are_refused():
    masked = np.ma.array(["the", "dog"], mask=[0, 1])
    for extractor in (TokenFeatures(), TemplateFeatures("U:%x[0,0]"), PerToken(OneHotEncoder())):
        with pytest.raises(ValueError, match=r"Sequence 0 of X is a masked array, .* fill it: "):
            extractor.fit([masked])


WRONG_Y = {
    "None": lambda: None,
    "int": lambda: 3,
    "string": lambda: "ab",
    "mapping": lambda: {0: ["a", "b"], 1: ["a"]},
    "function": lambda: len,
    "one sequence": lambda: ["a", "b"],
    "strings as sequences": lambda: ["ab", "b"],
    "sets": lambda: [{"a", "b"}, {"a"}],
    "Nones": lambda: [None, None],
    "a sequence too few": lambda: [["B-a", "B-b"]],
    "a label too few": lambda: [["B-a"], ["B-a"]],
    "too deep": lambda: [[["a"], ["b"]], [["a"]]],
    "floats": lambda: [[1.5, 2.0], [1.0]],
    "NaN": lambda: [["B-a", np.nan], ["B-a"]],
    "bytes": lambda: [[b"a", b"b"], [b"a"]],
}
ESTIMATORS = [CRFTagger, HMSVMTagger, ZScoreTagger, ZScoreTaggerCV, SemiCRFSegmenter]
EXTRACTORS = [TokenFeatures, TemplateFeatures, DictFeatures, PerToken, WindowFeatures]


def assert_sentence(call):
    """The call raises an error of ours: on purpose, with a name of the input in it."""
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    message = str(caught.value)
    assert "sklseq" in last.filename
    assert any(name in message for name in (" X", "X ", "y ", " y")), message


@pytest.mark.parametrize("form", WRONG_X)
@pytest.mark.parametrize("make", ESTIMATORS + EXTRACTORS)
def test_wrong_input_is_named(make, form):
    assert_sentence(lambda: make().fit(WRONG_X[form](), [["B-a", "B-b"], ["B-a"]]))


@pytest.mark.parametrize("form", WRONG_Y)
@pytest.mark.parametrize("make", ESTIMATORS)
def test_wrong_labels_are_named(make, form):
    if make is CRFTagger and form == "NaN":
        pytest.skip("an unknown label")
    assert_sentence(lambda: make().fit(NUMBERS, WRONG_Y[form]()))


@pytest.mark.parametrize("make", [CRFTagger, SemiCRFSegmenter])
def test_wrong_input_after_training_is_named(make):
    fitted = make().fit(NUMBERS, [["B-a", "B-b"], ["B-a"]])
    for wrong in WRONG_X.values():
        assert_sentence(lambda wrong=wrong: fitted.predict(wrong()))
    for form, wrong in WRONG_Y.items():
        if make is CRFTagger and form == "NaN":
            continue  # an unknown label
        assert_sentence(lambda wrong=wrong: fitted.score(NUMBERS, wrong()))


@pytest.mark.parametrize("make", ESTIMATORS)
def test_masks_are_refused(make):
    X = [np.ma.masked_array(np.eye(2), mask=np.eye(2)), np.ones((1, 2))]
    with pytest.raises(ValueError, match=r"Sequence 0 of X is a masked array, .* fill it"):
        make().fit(X, [["B-a", "B-b"], ["B-a"]])


# ---------------------------------------------------------------- weights, files, object arrays


@pytest.mark.parametrize("weight", [["a", "b"], "ab", [[1, 1], [1]], {0: 1}, object(), [1j, 1]])
@pytest.mark.parametrize(
    "estimator", [CRFTagger, HMSVMTagger, ZScoreTagger, ZScoreTaggerCV, SemiCRFSegmenter]
)
def test_sample_weight_that_is_no_list_of_numbers(estimator, weight):
    y = [[(0, 2, "D")], [(0, 1, "N")]] if estimator is SemiCRFSegmenter else Y
    message = r"sample_weight must have one number per sequence, shape \(2,\); got "
    with pytest.raises(ValueError, match=message):
        estimator().fit(NUMBERS, y, sample_weight=weight)
    with pytest.raises(ValueError, match=message):
        CRFTagger().fit(NUMBERS, Y).score(NUMBERS, Y, sample_weight=weight)


@pytest.mark.parametrize("encoding", ["nope", "hex", None])
def test_unknown_encoding(encoding, tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("the D\n")
    message = f"encoding must be the name of a text encoding, such as 'utf-8'; got {encoding!r}"
    with pytest.raises(ValueError, match=message):
        read_conll(path, encoding=encoding)
    with pytest.raises(ValueError, match=message):
        write_conll(path, WORDS, encoding=encoding)
    assert path.read_text() == "the D\n"


@pytest.mark.parametrize("path", [None, 3, b"words.txt"])
def test_path_of_another_kind(path):
    with pytest.raises(
        TypeError, match="path must be a file name, an open file or a list of lines; got"
    ):
        read_conll(path)


def test_class_weight_of_an_unknown_label():
    with pytest.raises(ValueError, match="has the label 'z', which y does not have; remove it, or"):
        HMSVMTagger(class_weight={"z": 2}).fit(NUMBERS, Y)
    HMSVMTagger(class_weight={"D": 2, "N": 1, "P": 1, "z": 2}).fit(NUMBERS, Y)


@pytest.mark.parametrize("rows", [lambda x: x.astype(object), lambda x: list(x.astype(object))])
def test_object_array_of_numbers(rows):
    with pytest.raises(ValueError, match=r"Convert an object array of numbers by x\.astype\(float"):
        CRFTagger().fit([rows(x) for x in NUMBERS], Y)


@pytest.mark.parametrize("rows", [list, np.asarray])
def test_extractor_of_tokens_given_numbers(rows):
    with pytest.raises(
        ValueError, match=r"Row 0 of sequence 0 .*Rows of numbers need no extractor"
    ):
        TokenFeatures().fit([rows(np.ones((3, 2))), rows(np.ones((1, 2)))])


def test_parts_of_zscore_training_without_sequences_or_weight():
    X, y = [[{"w": "a"}, {"w": "b"}]], [["x", "y"]]
    tagger = ZScoreTagger().partial_fit(X, y, classes=["x", "y"])
    before = tagger.coef_.copy()
    tagger.partial_fit([[]], [[]]).partial_fit([[{"w": "c"}]], [["x"]], sample_weight=[0])
    np.testing.assert_array_equal(tagger.coef_, before)
    for wrong in (None, 5, iter(X)):
        with pytest.raises(ValueError, match="X must be a list of sequences"):
            tagger.partial_fit(wrong, [["x"]])
    with pytest.raises(ValueError, match="at least one row"):
        ZScoreTagger().partial_fit([[]], [[]], classes=["x", "y"])


def test_new_attributes_beyond_the_limit_of_zscore_parts():
    tagger = ZScoreTagger().partial_fit([[{"a": 1}]], [["x"]], classes=["x", "y"])
    X = [[{f"b{k}": 1 for k in range(4000)}]]
    with pytest.warns(UserWarning, match=r"would make more than 4000 columns, such as 'b0' \(4000"):
        tagger.partial_fit(X, [["x"]])


@pytest.mark.parametrize("sequence", ["OO", b"OO", {0: "O", 1: "O"}], ids=repr)
def test_segments_in_no_list(sequence):
    with pytest.raises(ValueError, match="Sequence 0 of y must be a list of segments"):
        SemiCRFSegmenter().fit([np.eye(2)], [sequence])


def test_labels_from_a_generator_in_later_parts():
    X, y = [[{"w": "a"}, {"w": "b"}]] * 2, [["x", "y"]] * 2
    tagger = CRFTagger().fit(X, y)
    expected = clone(tagger).fit(X, y).partial_fit(X, y)
    np.testing.assert_array_equal(tagger.partial_fit(X, iter(y)).coef_, expected.coef_)


def test_messages_name_what_was_given():
    X, y = [np.eye(2)] * 3, [["x", "y"]] * 3
    with pytest.raises(ValueError, match="n_jobs must be at most 10000; got 100"):
        CRFTagger(n_jobs=10**20).fit(X, y)
    with pytest.raises(ValueError, match="does not take three arguments"):
        CRFTaggerCV(scoring=lambda a: 1).fit(X, y)
    tagger = CRFTagger(transition_features=[0]).partial_fit(X, y, classes=["x", "y"])
    with pytest.raises(ValueError, match="with other columns as transition features than training"):
        tagger.set_params(transition_features=[1]).partial_fit(X, y)
    segmenter = SemiCRFSegmenter().fit(X, [[(0, 1, "x"), (1, 2, "y")]] * 3)
    with pytest.raises(ValueError, match="in blocks, which this method does not read"):
        segmenter.predict([RowBlocks(X)])


@pytest.mark.parametrize("parameters", [{}, {"transition_features": [0]}])
def test_rows_of_a_pool_are_named_by_their_stream(parameters):
    X, y = [np.eye(2)] * 3, [["x", "y"]] * 3
    pool = OnlineDecoder(CRFTagger(**parameters), strategy="closure").fit(X, y).pool()
    pool.push_many(["a"], np.ones((1, 2)))
    with pytest.raises(ValueError, match="row 2 of stream 'a' holds nan in column 0"):
        pool.push_many(["b", "a", "b", "a"], np.array([[1, 0], [1, 0], [0, 1], [np.nan, 1]]))


MODELS = {
    "crf": lambda: CRFTagger(),
    "transition features": lambda: CRFTagger(transition_features=[0]),
    "hmsvm": lambda: HMSVMTagger(random_state=0),
    "rbf": lambda: HMSVMTagger(kernel="rbf", random_state=0),
    "zscore": lambda: ZScoreTagger(),
}


@pytest.mark.parametrize("name", MODELS)
def test_continued_holds_flags(name):
    model = MODELS[name]().fit(NUMBERS, Y)
    expected = model.potentials(NUMBERS, continued=[False, True])
    for flags in ([0, 1], np.array([0.0, 1.0]), (False, True)):
        for a, b in zip(model.potentials(NUMBERS, continued=flags), expected):
            np.testing.assert_equal(getattr(a, "score", a), getattr(b, "score", b))
    for wrong in ([0, 2], [True], [[False, True]], ["a", "b"], True, [None, None], [np.nan, 0]):
        with pytest.raises(ValueError, match=r"^continued must "):
            model.potentials(NUMBERS, continued=wrong)


SPARSE = ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"]


@pytest.mark.parametrize("form", SPARSE)
@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("name", MODELS)
def test_every_sparse_form(name, form, kind):
    X = [getattr(sparse, f"{form}_{kind}")(x) for x in NUMBERS]
    csr = [sparse.csr_array(x) for x in NUMBERS]
    model = MODELS[name]().fit(X, Y)
    other = MODELS[name]().fit(csr, Y)
    np.testing.assert_equal(model.transition_, other.transition_)
    assert model.predict(X) == model.predict([*X, []])[:-1] == other.predict(csr)
    assert list(map(list, model.predict([RowBlocks(x) for x in X]))) == model.predict(X)


def test_sparse_of_one_dimension():
    with pytest.raises(ValueError, match=r"Sequence 1 of X must be 2-D .* got shape \(2,\)"):
        CRFTagger().fit([sparse.csr_array(np.eye(2)), sparse.coo_array(np.ones(2))], Y)


@pytest.mark.parametrize(
    "method", ["predict_proba", "predict_nbest", "predict_spans", "potentials"]
)
def test_shards_where_not_read(method):
    model = CRFTagger().fit(NUMBERS, Y)
    with pytest.raises(ValueError, match=r"data in shards \(Shards\), which predict and score"):
        getattr(model, method)(Shards([lambda: (NUMBERS, Y)]))


def test_blocks_where_not_read():
    model = ZScoreTagger(probability=True).fit([*NUMBERS] * 3, [*Y] * 3)
    with pytest.raises(ValueError, match="or use fit or predict_proba of CRFTagger"):
        model.predict_proba([RowBlocks(NUMBERS[0])])


def test_segments_score_needs_weight():
    segmenter = SemiCRFSegmenter().fit(NUMBERS, [[(0, 1, "N")], [(0, 1, "P")]])
    with pytest.raises(ValueError, match="score needs at least one row of positive weight and kn"):
        segmenter.score(NUMBERS, [[(0, 1, "N")], [(0, 1, "P")]], sample_weight=[0, 0])


SEGMENTS = [[(0, 1, "a"), (1, 3, "b")], [(0, 2, "a")]] * 3


@pytest.mark.parametrize(
    "model",
    [SemiCRFSegmenter(), SegmentReranker(SemiCRFSegmenter(), text=False, cv=2)],
    ids=lambda model: type(model).__name__,
)
def test_segments_of_an_iterator_are_those_of_a_list(model):
    X = [np.eye(3), np.eye(3)[:2]] * 3
    expected = clone(model).fit(X, SEGMENTS)
    model = clone(model).fit(X, iter(SEGMENTS))
    assert np.array_equal(model.coef_, expected.coef_)
    assert model.score(X, (segments for segments in SEGMENTS)) == model.score(X, SEGMENTS)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (SemiCRFSegmenter(constraints=iter([("a", "b")])), "constraints must be None or a list"),
        (CRFTagger(constraints=iter([("a", "b")])), "constraints given as a mask"),
        (SegmentReranker(functions=iter([print])), "functions must be None or a list"),
    ],
)
def test_parameters_that_can_be_read_once_are_refused(model, message):
    y = [["a", "b", "a"], ["b", "a"]] * 3 if isinstance(model, CRFTagger) else SEGMENTS
    with pytest.raises(ValueError, match=message):
        model.fit([np.eye(3), np.eye(3)[:2]] * 3, y)


@pytest.mark.parametrize("model", [CRFTagger(), HMSVMTagger(), ZScoreTagger(), WindowFeatures()])
def test_potentials_of_segments_need_a_segmenter(model):
    X = SegmentFeatures().fit_transform(WORDS)
    with pytest.raises(ValueError, match="X is SegmentPotentials, features of segments, which"):
        model.fit(X, Y)
    if hasattr(model, "predict"):
        model.fit(NUMBERS, Y)
        with pytest.raises(ValueError, match="X is SegmentPotentials, features of segments, which"):
            model.predict(X)


@pytest.mark.parametrize("model", [TokenFeatures(), SegmentReranker(SemiCRFSegmenter(), cv=2)])
def test_potentials_of_segments_hold_no_tokens(model):
    with pytest.raises(ValueError, match="X is SegmentPotentials, which holds no tokens"):
        model.fit(SegmentFeatures().fit_transform(WORDS), [[(0, 1, "D")], []])


def test_a_folder_without_shards_is_named(tmp_path):
    for folder in (tmp_path, tmp_path / "missing", str(tmp_path / "missing")):
        message = rf"folder with \.npz files, .*Sequences.save.*{tmp_path.name}"
        with pytest.raises(ValueError, match=message):
            Shards(folder)


@pytest.mark.parametrize("X", [DICTS, NUMBERS, [[["the"], ["dog"]], [["it"]]], [(("the", "D"),)]])
@pytest.mark.parametrize("ask", [explain, MarginalsDisplay.from_estimator, CRFTagger.explain])
def test_all_sequences_in_place_of_one(X, ask):
    model = CRFTagger().fit(NUMBERS if X is NUMBERS else DICTS, Y)
    with pytest.raises(ValueError, match=rf"x must be one sequence; got {len(X)} sequences"):
        ask(model, X)


def test_one_sequence_in_place_of_all_in_displays():
    tagger = CRFTagger().fit(DICTS, [["B-a", "O"], ["O"]])
    for display in (SegmentationDisplay, SpansDisplay):
        with pytest.raises(ValueError, match=r"its first item is a row, .* in a list: \[X\]"):
            display.from_estimator(tagger, [{"n": 1}, {"n": 2}])


@pytest.mark.parametrize("kind", [int, object, "U3"])
def test_segments_as_arrays(kind):
    rows, triples = [np.array([[0, 2, 1]]).astype(kind)], [[(0, 2, "1")]]
    for y_true, y_pred, name in ((rows, triples, "y_true"), (triples, rows, "y_pred")):
        with pytest.raises(TypeError, match=f"Sequence 0 of {name} .* list of tuples"):
            span_f1(y_true, y_pred)


def test_span_types_given_twice():
    y = [["B-a", "O", "B-b"]]
    with pytest.raises(ValueError, match="labels must be different span types; it has 'b'"):
        span_f1(y, y, labels=["b", "a", "b"])
    with pytest.raises(ValueError, match="types must be different span types; it has 'a'"):
        SpanConfusionDisplay.from_predictions(y, y, types=["a", "a"])
