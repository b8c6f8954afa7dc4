"""Every public call: without sequences, with input that can be read once, from several threads at
first use, and with items that are refused."""

import functools
import inspect
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import sklseq
from sklseq import (
    ConformalTagger,
    CRFTagger,
    CRFTaggerCV,
    HMSVMTagger,
    HMSVMTaggerCV,
    OnlineDecoder,
    RowBlocks,
    SegmentReranker,
    SemiCRFSegmenter,
    ZScoreTagger,
    ZScoreTaggerCV,
    datasets,
    display,
    inspection,
    metrics,
    runtime,
)
from sklseq.deployment import describe
from sklseq.features import (
    DictFeatures,
    LexiconFeatures,
    PerToken,
    SegmentFeatures,
    TemplateFeatures,
    TokenFeatures,
    WindowFeatures,
)

X = 2 * [[["a"], ["b"], ["a"]], [["b"], ["b"], ["a"]], [["c"], ["a"]]]
Y = 2 * [["B-x", "O", "B-x"], ["O", "O", "B-x"], ["O", "B-x"]]
PACKED, NUMBERS = DictFeatures().fit_transform(X), [np.ones((len(x), 99)) for x in X]
TOKENS = [[word for (word,) in x] for x in X]

MODELS = {
    "CRFTagger": lambda: CRFTagger(),
    "CRFTaggerCV": lambda: CRFTaggerCV(l2s=[0.1], cv=2),
    "HMSVMTagger": lambda: HMSVMTagger(random_state=0),
    "HMSVMTaggerCV": lambda: HMSVMTaggerCV(Cs=[1.0], cv=2, random_state=0),
    "rbf": lambda: HMSVMTagger(kernel="rbf", random_state=0),
    "ZScoreTagger": lambda: ZScoreTagger(),
    "ZScoreTaggerCV": lambda: ZScoreTaggerCV(),
    "SemiCRFSegmenter": lambda: SemiCRFSegmenter(),
    "SegmentReranker": lambda: SegmentReranker(SemiCRFSegmenter(), cv=2, text=False),
    "OnlineDecoder": lambda: OnlineDecoder(CRFTagger(), lag=1),
    "segments online": lambda: OnlineDecoder(SemiCRFSegmenter(), strategy="closure"),
    "ConformalTagger": lambda: ConformalTagger(
        CRFTagger(), alpha=0.5, calibration=0.5, random_state=0
    ),
    "pipeline": lambda: make_pipeline(WindowFeatures(TokenFeatures()), CRFTagger()),
    "segment pipeline": lambda: make_pipeline(SegmentFeatures(TokenFeatures()), SemiCRFSegmenter()),
    "DictFeatures": lambda: DictFeatures(),
    "LexiconFeatures": lambda: LexiconFeatures({"x": ["a b", "c"]}),
    "PerToken": lambda: PerToken(OneHotEncoder(handle_unknown="ignore")),
    "SegmentFeatures": lambda: SegmentFeatures(TokenFeatures()),
    "TemplateFeatures": lambda: TemplateFeatures(["c0[0]", "c0[-1]|c0[1]"]),
    "TokenFeatures": lambda: TokenFeatures(),
    "WindowFeatures": lambda: WindowFeatures(TokenFeatures(), conjoin=["c0.lower[-1]|c0.lower[0]"]),
}
EVERY = [*MODELS, "exported"]
ABOUT_MODELS = (
    "extract", "log_proba_sequence", "marginals", "nbest", "segment_proba", "spans", "uncertainty",
    "uncertain_rows",
)  # fmt: skip


@functools.cache
def stored(name):
    """The fitted model, pickled: a copy of it has answered nothing."""
    return pickle.dumps(MODELS[name]().fit(X, Y))


def fresh(name):
    if name == "exported":
        return runtime.Decoder(describe(pickle.loads(stored("CRFTagger"))))
    return pickle.loads(stored(name))


def questions(name):
    """Names of public methods that answer about X."""
    if name == "exported":
        return ["predict", "predict_proba", "predict_spans", "predict_log_proba_sequence"]
    model, found = pickle.loads(stored(name)), []
    for method in (m for m in dir(model) if m[0] != "_" and "fit" not in m and m[:4] != "set_"):
        call = getattr(model, method, None)  # pipelines have methods that their steps have
        takes_X = inspect.isroutine(call) and "X" in inspect.signature(call).parameters
        if takes_X and method not in OTHER_INPUT and not refuses(name, method):
            found.append(method)
    return found


def refuses(name, method):
    # As an OnlineDecoder of a segmenter has no probabilities.
    return isinstance(answer_or_refusal(ask, fresh(name), method, X), TypeError)


def ask(model, method, X, y=Y):
    call = getattr(model, method)
    parameters = inspect.signature(call).parameters
    given = {"random_state": 0} if "random_state" in parameters else {}
    if "y" in parameters:
        given["y"] = y
    return call(X, **given)


# Other input than X: one sequence, blocks, or rows; and answers about all rows together.
OTHER_INPUT = {"explain", "predict_single", "predict_blocks", "extend", "inverse_transform"}
OF_ALL = {"score", "coverage_report", "latency_report", "to_crf"}


def answer_or_refusal(call, *args):
    try:
        return call(*args)
    except (TypeError, ValueError) as error:
        return error


def same(a, b):
    """Whether two answers are equal, whatever their form."""
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if sparse.issparse(a):
        return same(a.toarray(), b.toarray())
    if isinstance(a, np.ndarray) and a.dtype == object:
        return same(a.tolist(), b.tolist())
    if isinstance(a, (np.ndarray, float)):
        return np.array_equal(a, b, equal_nan=np.asarray(a).dtype.kind == "f")
    if type(a).__module__.startswith("sklseq"):
        return same(pickle.dumps(a), pickle.dumps(b))
    return a == b


# ------------------------------------------------------------------------------- no sequences


@pytest.mark.parametrize("name", EVERY)
def test_no_sequences_have_no_answers(name):
    for method in questions(name):
        if method in OF_ALL:
            with pytest.raises(ValueError, match=r"at least one|no rows"):
                ask(fresh(name), method, [], [])
        else:
            assert_none(ask(fresh(name), method, [], []), ask(fresh(name), method, X))


@pytest.mark.parametrize("function", ABOUT_MODELS)
def test_inspection_of_no_sequences(function):
    model, call = fresh("pipeline"), getattr(inspection, function)
    given = {"n": 2} if function == "uncertain_rows" else {}
    both = [Y] if function == "log_proba_sequence" else []
    answer = call(model, TOKENS[:0], *(y[:0] for y in both), **given)
    assert_none(answer, call(model, TOKENS, *both, **given))


def assert_none(answer, whole):
    """``answer`` has the form of ``whole``, of no sequences and no rows."""
    assert type(answer) is type(whole)
    if hasattr(answer, "offsets"):
        assert len(answer.offsets) == 1
    elif isinstance(answer, tuple) and hasattr(answer, "_fields"):
        for none, some in zip(answer, whole):
            assert none is None or np.ndim(some) == 0 or len(none) == 0
    else:
        assert len(answer) == 0
    if isinstance(whole, np.ndarray):
        assert answer.ndim == whole.ndim


# ------------------------------------------------------------------------------- read once

ONCE = {
    "rows": lambda lists: [iter(one) for one in lists],
    "both": lambda lists: (iter(one) for one in lists),
}


def assert_same_or_refused(once, whole):
    deferred = isinstance(once, list) and once and isinstance(once[0], RowBlocks)  # read later
    assert deferred or isinstance(once, (TypeError, ValueError)) or same(once, whole)


@pytest.mark.parametrize("once", ONCE)
@pytest.mark.parametrize("name", EVERY)
def test_iterators_give_the_same_answers_or_are_refused(name, once):
    model = fresh(name)
    for method in questions(name):
        whole = ask(model, method, X)
        for args in ((ONCE[once](X), Y), (X, ONCE[once](Y))):
            assert_same_or_refused(answer_or_refusal(ask, model, method, *args), whole)


@pytest.mark.parametrize("once", ONCE)
@pytest.mark.parametrize("name", [name for name in MODELS if "CV" not in name])
def test_models_of_iterators_are_the_same_or_refused(name, once):
    def fit(X_once, y_once):
        model = MODELS[name]().fit(X_once, y_once)
        return ask(model, "predict" if hasattr(model, "predict") else "transform", X)

    whole = fit(X, Y)
    assert_same_or_refused(answer_or_refusal(fit, ONCE[once](X), Y), whole)
    assert_same_or_refused(answer_or_refusal(fit, X, ONCE[once](Y)), whole)


DOCS = [[SimpleNamespace(text=w, tag_=w, ent_iob_="B", ent_type_="x") for w in x] for x in TOKENS]
ROWS = [{"tokens": x, "tags": y} for x, y in zip(TOKENS, Y)]
SPANS = [[(0, 1, "x"), (1, 2, "y")] for _ in X]
FUNCTIONS = {
    **{
        name: (getattr(metrics, name), Y, Y)
        for name in metrics.__all__
        if inspect.isfunction(getattr(metrics, name)) and name != "get_scorer"
    },
    "span_fbeta": (functools.partial(metrics.span_fbeta, beta=2.0), Y, Y),
    "span_confusion": (lambda *y: display.SpanConfusionDisplay.from_predictions(*y).counts, Y, Y),
    "align_spans": (lambda a, b: datasets.align_spans(a, b), SPANS[0], [(0, 1), (1, 2)]),
    "from_docs": (lambda docs: datasets.from_docs(docs, "ent"), DOCS),
    "from_docs of tags": (lambda docs: datasets.from_docs(docs, "tag_"), DOCS),
    "from_rows": (lambda rows: datasets.from_rows(rows, "tags"), ROWS),
    "labels_to_segments": (lambda y: sklseq.labels_to_segments(y), Y[0]),
    "segments_to_labels": (lambda y: sklseq.segments_to_labels(y, 3), [(0, 1, "x"), (2, 3, "y")]),
    "token_offsets": (lambda tokens: datasets.token_offsets("a b a", tokens), TOKENS[0]),
}


@pytest.mark.parametrize("once", ONCE)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_iterators_give_the_same_or_refuse(name, once):
    function, *lists = FUNCTIONS[name]
    whole = function(*lists)
    for k, given in enumerate(lists):
        of = iter if isinstance(given[0], (str, dict, SimpleNamespace)) else ONCE[once]
        args = [*lists[:k], of(given), *lists[k + 1 :]]
        assert_same_or_refused(answer_or_refusal(function, *args), whole)


# ------------------------------------------------------------------------------- first use

# Tables that are complete when they are set: a second one would be the same.
TABLES = {"_rows", "_table", "_tables", "score_t"}


def attributes(owner, seen, path=""):
    """{path: identity of the value} of attributes of objects of sklseq, and of those inside."""
    found = {}
    for name, value in getattr(owner, "__dict__", {}).items():
        if name in TABLES or id(value) in seen:
            continue
        seen.add(id(value))
        found[f"{path}.{name}"] = id(value)
        if type(value).__module__.startswith("sklseq"):
            found |= attributes(value, seen, f"{path}.{name}")
    return found


@pytest.mark.parametrize("name", EVERY)
def test_answers_store_nothing_that_threads_could_find_half_made(name):
    for method in questions(name):
        model = fresh(name)
        before = attributes(model, set())
        answer = ask(model, method, X)
        assert attributes(model, set()) == before, method
        del answer


@pytest.mark.parametrize("name", EVERY)
def test_threads_may_ask_first_together(name):
    for method in questions(name)[:3]:
        wanted, model, barrier = ask(fresh(name), method, X), fresh(name), threading.Barrier(3)

        def one(_, method=method, model=model, barrier=barrier):
            barrier.wait()
            return ask(model, method, X)

        with ThreadPoolExecutor(3) as pool:
            assert all(same(found, wanted) for found in pool.map(one, range(3)))


# ------------------------------------------------------------------------------- refused items


def held(owner):
    """What a stream or model holds, as bytes."""
    if isinstance(owner, runtime.Stream):
        return pickle.dumps((owner.n_seen, owner._items, owner._beam.state()))
    state = dict(owner.__getstate__())
    for name in ("model", "_model", "_attributes_warned"):
        state.pop(name, None)
    return pickle.dumps(state)


def refused_by(owner):
    """(method, arguments) of calls that must be refused, and leave all as it was."""
    wrong = [[object()], {"w": object()}, 3, None, np.full(2, np.nan)]
    for item in wrong:
        yield "push", (item,)
        yield "push_many", ([["a"], item],)
    yield "push_potentials", (np.full((1, 99), 0.0),)
    yield "commit", (99,)
    nan = PACKED.with_rows(np.full(PACKED.rows.shape, np.nan))
    for rows, labels in (
        (PACKED, Y[:1]), (PACKED, [["new"] * len(y) for y in Y]), (PACKED, [y[:1] for y in Y]),
        (nan, Y), (NUMBERS, Y), (X, Y),
    ):  # fmt: skip
        yield "partial_fit", (rows, labels)


def streams():
    for name in ("OnlineDecoder", "segments online"):
        model = fresh(name)
        yield getattr(model, "segment_stream" if name[0] == "s" else "stream")()
    yield fresh("exported").stream(lag=1)
    for name in ("CRFTagger", "HMSVMTagger", "ZScoreTagger"):
        model = getattr(sklseq, name)(**({"solver": "perceptron"} if name[0] == "H" else {}))
        yield model.partial_fit(PACKED, Y, classes=["B-x", "I-x", "O"])


@pytest.mark.parametrize("owner", streams(), ids=lambda owner: type(owner).__name__)
def test_refused_items_change_nothing(owner):
    if hasattr(owner, "push"):
        owner.push(["a"])
    n_refused = 0
    for method, args in refused_by(owner):
        if hasattr(owner, method):
            before = held(owner)
            with pytest.raises((TypeError, ValueError)):
                getattr(owner, method)(*args)
            assert held(owner) == before, (method, args)
            n_refused += 1
    assert n_refused > 4


@pytest.mark.parametrize("name", ["OnlineDecoder", "exported"])
@pytest.mark.parametrize("lag", [0, 1])
def test_items_without_a_path_change_nothing(name, lag):
    tagger = fresh("CRFTagger")
    tagger.transition_ = np.full_like(tagger.transition_, -np.inf)
    if name == "exported":
        stream = runtime.Decoder(describe(tagger)).stream(lag=lag)
    else:
        stream = OnlineDecoder(FrozenEstimator(tagger), lag=lag).stream()
    stream.push(["a"])
    before = held(stream)
    for _ in range(2):
        with pytest.raises(ValueError, match="row 1"):
            stream.push(["b"])
        assert held(stream) == before
    assert stream.n_seen == 1
