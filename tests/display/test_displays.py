"""Heat maps, curves and the HTML of segments: what is drawn is what was computed."""

import json
import os
import shutil
import subprocess

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from sklseq import (
    CRFTagger,
    CRFTaggerCV,
    HMSVMTagger,
    HMSVMTaggerCV,
    SemiCRFSegmenter,
    ZScoreTagger,
)
from sklseq.data.span_labels import LETTERS
from sklseq.display import (
    LossCurveDisplay,
    MarginalsDisplay,
    PenaltyPathDisplay,
    SegmentationDisplay,
    SpanConfusionDisplay,
    TransitionsDisplay,
)
from sklseq.features import TokenFeatures
from sklseq.inspection import Span
from sklseq.metrics import span_precision_recall_fscore_support

plt = pytest.importorskip("matplotlib.pyplot")

X = [
    [{"w": w} for w in sentence.split()]
    for sentence in ("Ann Lee met Bob in Rome", "in Rome Ann saw New York", "Bob Lee left")
]
Y = [
    ["B-PER", "I-PER", "O", "B-PER", "O", "B-LOC"],
    ["O", "B-LOC", "B-PER", "O", "B-LOC", "I-LOC"],
    ["B-PER", "I-PER", "O"],
]


@pytest.fixture(autouse=True)
def closed_figures():
    plt.switch_backend("agg")
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def model():
    return CRFTagger(l2=0.1, constraints="iob2").fit(X, Y)


def texts(ax):
    return [text.get_text() for text in ax.texts]


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def covers_no_data(ax):
    """Whether the legend lies outside of the axes."""
    ax.figure.canvas.draw()
    legend = ax.get_legend().get_window_extent()
    return not ax.get_window_extent().shrunk(0.99, 0.99).overlaps(legend)


# --- Transitions --------------------------------------------------------------------------------


def test_transitions_of_a_tagger(model):
    display = TransitionsDisplay.from_estimator(model)
    assert display.labels.tolist() == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    classes = model.classes_.tolist()
    for i, a in enumerate(display.labels):
        for j, b in enumerate(display.labels):
            expected = model.transition_[classes.index(a), classes.index(b)]
            assert display.transition[i, j] == expected
    _, ax = plt.subplots()
    assert display.plot(ax) is display
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    (image,) = ax.get_images()
    shown = image.get_array()
    assert_array_equal(shown[1:, :-1].filled(-np.inf), display.transition)
    assert_array_equal(shown[0, :-1].filled(-np.inf), display.start)
    assert_array_equal(shown[1:, -1].filled(-np.inf), display.end)
    assert len(ax.patches) == shown.mask.sum()  # each cell that is forbidden is hatched
    assert ticks(ax.yaxis) == ["(start)", *display.labels]
    assert ticks(ax.xaxis) == [*display.labels, "(end)"]
    low, high = image.get_clim()
    assert low == -high == -np.abs(shown).max()


@pytest.mark.parametrize("seed", range(2))
def test_transitions_that_are_given(seed):
    weights = np.random.default_rng(seed).normal(size=(3, 3))
    ax = TransitionsDisplay(weights, ["a", "b", "c"]).plot().ax_
    assert ax.get_images()[0].get_array().shape == (3, 3)
    written = [f"{w:.1f}" if abs(w) >= 0.05 else None for w in weights.ravel()]
    assert texts(ax) == [text for text in written if text]
    ax = TransitionsDisplay(weights, ["a", "b", "c"]).plot(values=False).ax_
    assert texts(ax) == []


def test_transitions_of_chosen_labels(model):
    display = TransitionsDisplay.from_estimator(make_pipeline(model), labels=["B-PER", "O"])
    which = [model.classes_.tolist().index(label) for label in ("B-PER", "O")]
    assert_array_equal(display.transition, model.transition_[np.ix_(which, which)])
    with pytest.raises(ValueError, match=r"labels must be some of .*; got \['B'\]"):
        TransitionsDisplay.from_estimator(model, labels=["B"])


def test_transitions_of_every_estimator():
    rows = TokenFeatures(columns="w").fit_transform([{"w": [t["w"] for t in x]} for x in X])
    for estimator in (HMSVMTagger(), ZScoreTagger()):
        fitted = estimator.fit(rows, Y)
        assert TransitionsDisplay.from_estimator(fitted).plot().transition.shape == (5, 5)
    with pytest.raises(ValueError, match="needs a fitted estimator with transition_; this CRFTag"):
        TransitionsDisplay.from_estimator(CRFTagger())
    with pytest.raises(ValueError, match=r"shapes \(2, 2\), \(2,\) and \(2,\), as there are 2"):
        TransitionsDisplay(np.zeros((3, 3)), ["a", "b"])


# --- Objective ----------------------------------------------------------------------------------


def test_loss_curves_are_those_of_training(model):
    other = CRFTagger(l2=5.0).fit(X, Y)
    display = LossCurveDisplay({"weak": model, "strong": make_pipeline(other)}).plot()
    for line, tagger in zip(display.ax_.get_lines(), (model, other), strict=True):
        assert_array_equal(line.get_ydata(), tagger.loss_curve_)
        assert_array_equal(line.get_xdata(), np.arange(tagger.n_iter_ + 1))
    assert covers_no_data(display.ax_)
    assert display.score_ax_ is None
    assert display.ax_.get_xlabel() == "iteration"
    lines = LossCurveDisplay({"weak": model}).plot(above_lowest=True).ax_.get_lines()
    above = np.array(model.loss_curve_) - min(model.loss_curve_)
    assert_array_equal(lines[0].get_ydata(), above[above > 0])


def test_loss_curve_of_a_search(model):
    search = GridSearchCV(CRFTagger(max_iter=50), {"l2": [0.5, 1.0]}, cv=2, error_score="raise")
    search.fit(X, [["A" if t % 2 else "B" for t in range(len(x))] for x in X])
    display = LossCurveDisplay.from_estimator(search, name="best")
    assert display.curves[0].name == "best"
    assert display.curves[0].objective.tolist() == search.best_estimator_.loss_curve_


def test_scores_of_early_stopping_have_an_axis():
    tagger = CRFTagger(early_stopping=True, validation_fraction=0.2).fit(X * 4, Y * 4)
    display = LossCurveDisplay.from_estimator(tagger).plot()
    (line,) = display.score_ax_.get_lines()
    assert_array_equal(line.get_ydata(), tagger.validation_scores_)
    assert covers_no_data(display.ax_)


def test_the_bound_of_a_margin_tagger():
    tagger = HMSVMTagger().fit(X, Y)
    lines = LossCurveDisplay.from_estimator(tagger).plot().ax_.get_lines()
    assert [line.get_label() for line in lines] == ["HMSVMTagger", "HMSVMTagger, bound"]
    for line, column in zip(lines, (1, 2)):
        assert_array_equal(line.get_ydata(), tagger.loss_curve_[:, column])
        assert_array_equal(line.get_xdata(), tagger.loss_curve_[:, 0])


def test_loss_curves_need_iterations():
    with pytest.raises(ValueError, match="needs a fitted estimator with loss_curve_; this Z"):
        LossCurveDisplay.from_estimator(ZScoreTagger().fit(X, Y))
    with pytest.raises(ValueError, match="at least one estimator"):
        LossCurveDisplay({})


# --- Confusion of spans -------------------------------------------------------------------------


def random_spans(rng, n):
    spans, at = [], 0
    while at < n:
        stop = min(n, at + int(rng.integers(1, 4)))
        if rng.random() < 0.6:
            spans.append((at, stop, "abc"[rng.integers(3)]))
        at = stop
    return spans


@pytest.mark.parametrize("seed", range(4))
def test_confusion_by_counting(seed):
    rng = np.random.default_rng(seed)
    pairs = [(random_spans(rng, 12), random_spans(rng, 12)) for _ in range(20)]
    display = SpanConfusionDisplay.from_predictions(*zip(*pairs), types=list("abc"))
    expected = np.zeros((5, 5), dtype=int)
    for true, predicted in pairs:
        rows_of = [[set(range(a, b)) for a, b, _ in spans] for spans in (true, predicted)]
        for one, other, mine, transposed in (
            (true, predicted, rows_of[1], False),
            (predicted, true, rows_of[0], True),
        ):
            for a, b, type_ in one:
                rows, same = set(range(a, b)), [s for s in other if s[:2] == (a, b)]
                if same and transposed:
                    continue
                if same:
                    column = "abc".index(same[0][2])
                else:
                    column = 3 if any(rows & each for each in mine) else 4
                cell = "abc".index(type_), column
                expected[cell[::-1] if transposed else cell] += 1
    assert_array_equal(display.counts, expected)
    assert display.counts[:3].sum() == sum(len(true) for true, _ in pairs)
    assert display.counts[:, :3].sum() == sum(len(p) for _, p in pairs)


def test_confusion_of_an_estimator(model):
    display = SpanConfusionDisplay.from_estimator(model, X, Y)
    assert display.types == ["PER", "LOC"]  # most frequent first
    assert_array_equal(display.counts, np.diag([4, 3, 0, 0]))
    ax = display.plot().ax_
    shown = ax.get_images()[0].get_array()
    assert_allclose(np.asarray(shown[:2, :2]), np.eye(2))
    assert shown.mask[2:, 2:].all()
    assert texts(ax) == ["4", "3"]
    assert ticks(ax.yaxis) == ["PER (4)", "LOC (3)", "other bounds", "nothing"]
    shown = display.plot(normalize=False, values=False).ax_.get_images()[0].get_array()
    assert_allclose(np.asarray(shown[:2, :2]), np.diag([4, 3]))


def test_confusion_of_segments_and_chosen_types():
    y_true = [[(0, 1, "a"), (2, 4, "b")], [(0, 2, "O")]]
    y_pred = [[(0, 1, "b"), (2, 3, "b")], []]
    display = SpanConfusionDisplay.from_predictions(y_true, y_pred, types=["b"])
    # The prediction at the place of the "a", which is left out, is one where nothing is.
    assert_array_equal(display.counts, [[0, 1, 0], [1, 0, 0], [1, 0, 0]])


@pytest.mark.parametrize("scheme", [None, "iob1", "iob2", "ioe2", "iobes", "bilou"])
@pytest.mark.parametrize("seed", range(3))
def test_confusion_counts_the_spans_of_the_scores(seed, scheme):
    rng = np.random.default_rng(seed)
    letters = sorted(LETTERS[scheme])
    labels = ["O"] * 2 + [f"{letter}-{type_}" for letter in letters for type_ in "ab"]
    lengths = rng.integers(0, 9, size=40)
    y_true = [rng.choice(labels, size=n).tolist() for n in lengths]
    y_pred = [[rng.choice([label, rng.choice(labels)]) for label in y] for y in y_true]
    how = {"mode": "conlleval" if scheme is None else "strict", "scheme": scheme}
    display = SpanConfusionDisplay.from_predictions(y_true, y_pred, types=["a", "b"], **how)
    scores = span_precision_recall_fscore_support(y_true, y_pred, labels=["a", "b"], **how)
    right, true = np.diag(display.counts)[:2], display.counts.sum(axis=1)[:2]
    assert_array_equal(true, scores.support)
    assert_allclose(right, scores.recall * true, atol=1e-9)
    predicted = 2 * right / np.where(right, scores.f1, 1) - true
    assert_allclose(display.counts.sum(axis=0)[:2][right > 0], predicted[right > 0], atol=1e-9)


def test_confusion_mode_needs_its_scheme():
    for how in ({"mode": "strict"}, {"scheme": "iob2"}, {"mode": "x"}):
        with pytest.raises(ValueError, match=r"mode"):
            SpanConfusionDisplay.from_predictions([["O"]], [["O"]], **how)


@pytest.mark.parametrize(
    ("y_true", "y_pred", "message"),
    [
        ([["O"]], [], "same number of sequences; got 1 and 0"),
        ([["O"], ["O", "O"]], [["O"], ["O"]], "Sequence 1 has 2 labels in y_true but 1 in y_pred"),
        ([["O"], ["x"]], [["O"], ["O"]], "y_true: Label 'x' at row 0 of sequence 1 is not a span"),
        ([["O"], ["O"]], [[], [(0, "a")]], "Segment 0 of sequence 1 of y_pred must be"),
    ],
)
def test_confusion_errors(y_true, y_pred, message):
    with pytest.raises(ValueError, match=message):
        SpanConfusionDisplay.from_predictions(y_true, y_pred)
    with pytest.raises(ValueError, match=r"counts must have the shape \(3, 3\)"):
        SpanConfusionDisplay(np.zeros((2, 2)), ["a"])


# --- Marginals ----------------------------------------------------------------------------------


def test_marginals_of_a_tagger(model):
    wrong = ["O", *Y[0][1:]]
    display = MarginalsDisplay.from_estimator(model, X[0], wrong)
    assert_array_equal(display.proba, model.predict_proba(X[:1])[0])
    assert display.tokens == ["Ann", "Lee", "met", "Bob", "in", "Rome"]
    ax = display.plot().ax_
    assert_array_equal(ax.get_images()[0].get_array(), display.proba.T)
    classes = model.classes_.tolist()
    predicted, right = (scatter.get_offsets() for scatter in ax.collections)
    expected = [(t, classes.index(label)) for t, label in enumerate(Y[0])]
    assert_array_equal(predicted, expected)
    assert_array_equal(right, [(0, classes.index("O"))])
    assert covers_no_data(ax)
    assert ticks(display.plot(start=2, stop=5).ax_.xaxis) == ["met", "Bob", "in"]


def test_marginals_of_a_segmenter():
    words = [[token["w"] for token in x] for x in X]
    segments = [[(0, 2, "PER"), (3, 4, "PER"), (5, 6, "LOC")], [(1, 2, "LOC")], [(0, 2, "PER")]]
    from sklseq.features import SegmentFeatures

    model = make_pipeline(SegmentFeatures(), SemiCRFSegmenter()).fit(words, segments)
    display = MarginalsDisplay.from_estimator(model, words[0])
    assert display.tokens == words[0]
    assert display.plot().y_pred[:2] == ["PER", "PER"]


def test_marginals_errors(model):
    with pytest.raises(ValueError, match="needs predict_proba, which HMSVMTagger lacks"):
        MarginalsDisplay.from_estimator(HMSVMTagger().fit(X, Y), X[0])
    with pytest.raises(ValueError, match=r"shape \(n_steps, 3\), as there are 3 labels"):
        MarginalsDisplay(np.ones((2, 2)), ["a", "b", "c"])
    with pytest.raises(ValueError, match="y_true must have one entry per row, 2; got 1"):
        MarginalsDisplay(np.ones((2, 1)), ["a"], y_true=["a"])
    with pytest.raises(ValueError, match=r"^y must have one entry per row, 6; got 1"):
        MarginalsDisplay.from_estimator(model, X[0], ["O"])


@pytest.mark.parametrize("wrong", ["AB", ["A", "A"]])
def test_names_are_a_list_and_differ(model, wrong):
    problem = "a list of {}s; got the string 'AB'" if wrong == "AB" else "different {}s; it has 'A'"
    calls = [
        ("types", "span type", lambda: SpanConfusionDisplay(np.zeros((4, 4)), wrong)),
        ("types", "span type", lambda: SpanConfusionDisplay.from_predictions(Y, Y, types=wrong)),
        ("labels", "label", lambda: TransitionsDisplay(np.zeros((2, 2)), wrong)),
        ("labels", "label", lambda: TransitionsDisplay.from_estimator(model, labels=wrong)),
        ("labels", "label", lambda: MarginalsDisplay(np.zeros((3, 2)), wrong)),
    ]
    for name, noun, call in calls:
        with pytest.raises(ValueError, match=f"^{name} must be {problem.format(noun)}"):
            call()


# --- HTML in a browser --------------------------------------------------------------------------

# The page measures itself: by script, into its own title-like element.
PAGE = """<!doctype html><meta charset="utf-8"><body style="margin:8px">{html}
<pre id="measured"></pre><script>
const marks = [...document.querySelectorAll("mark")];
document.getElementById("measured").textContent = JSON.stringify({{
  text: marks.map(mark => mark.firstChild.textContent.trim()),
  background: marks.map(mark => getComputedStyle(mark).backgroundColor),
  color: marks.map(mark => getComputedStyle(mark).color),
  right: Math.max(...marks.flatMap(mark => [...mark.getClientRects()].map(box => box.right))),
  width: document.documentElement.clientWidth,
  scroll: document.documentElement.scrollWidth,
  scripts: window.injected || 0,
}})</script>"""


def contrast(one, other):
    """Ratio of luminances (WCAG 2.1, §1.4.3) of two css colours "rgb(r, g, b)"."""

    def luminance(css):
        values = [int(v) / 255 for v in css[css.index("(") + 1 : -1].split(",")[:3]]
        linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
        return np.dot([0.2126, 0.7152, 0.0722], linear)

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)], ids=["desktop", "phone"])
def test_html_of_segments_in_a_browser(tmp_path, width, height):
    resource = pytest.importorskip("resource")
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no chromium on the PATH (Debian: apt install chromium)")
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        pytest.skip("chromium does not start where address space is limited (ulimit -v)")
    words = ["<script>window.injected=1</script>", "&", "Ann", "of", "Rome"] * 12
    types = ["PER", "LOC", *(f"type {k}" for k in range(10))]
    segments = [(3 * k, 3 * k + 2, types[k]) for k in range(12)]
    display = SegmentationDisplay([words], [segments], [segments[1:]])
    page = tmp_path / "page.html"
    page.write_text(PAGE.format(html=display._repr_html_()), encoding="utf-8")
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},{height}",
        "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    environment = {**os.environ, "HOME": str(tmp_path)}
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    if 'id="measured"' not in run.stdout:
        pytest.fail(f"chromium shows no page: {run.stderr[-500:]}")
    measured = json.loads(run.stdout.split('<pre id="measured">')[1].split("</pre>")[0])
    shown = [" ".join(words[a:b]) for a, b, _ in segments]
    assert [
        text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        for text in measured["text"][: len(shown)]
    ] == shown
    assert measured["scripts"] == 0  # words are text, never markup
    assert measured["scroll"] <= measured["width"]  # nothing to be scrolled sideways
    assert measured["right"] <= measured["width"]
    # 4.5 is what WCAG asks of normal text.
    pairs = zip(measured["color"], measured["background"], strict=True)
    assert min(contrast(*pair) for pair in pairs) > 4.5
    assert len(set(measured["background"])) == 8


# --- Paths of penalties -------------------------------------------------------------------------


def test_path_of_a_search_over_two_penalties():
    search = CRFTaggerCV(l1s=[0.0, 0.1], l2s=[0.0, 1.0, 0.1], cv=2).fit(X * 2, Y * 2)
    display = PenaltyPathDisplay.from_estimator(search).plot()
    scores = search.scores_
    assert_array_equal(display.mean, scores.mean(axis=0))
    assert_allclose(display.error, scores.std(axis=0, ddof=1) / 2**0.5)
    assert display.curves == ["l1 = 0", "l1 = 0.1"]
    assert display.ax_.get_xscale() == "symlog"
    assert (search.l1s_[display.best[0]], search.l2s_[display.best[1]]) == (search.l1_, search.l2_)
    assert covers_no_data(display.ax_)
    bars = display.ax_.containers
    assert [bar[0].get_xdata().tolist() for bar in bars] == [[0.0, 0.1, 1.0]] * 2
    assert_array_equal(bars[1][0].get_ydata(), display.mean[1, [0, 2, 1]])


def test_path_of_one_penalty():
    search = HMSVMTaggerCV(Cs=[0.1, 1.0], cv=2).fit(X * 2, Y * 2)
    display = PenaltyPathDisplay.from_estimator(make_pipeline(search)).plot()
    assert (display.name, display.ax_.get_xscale(), display.mean.shape) == ("C", "log", (1, 2))
    search = CRFTaggerCV(l1s=[0.1, 1.0], l2s=[1.0], cv=2).fit(X * 2, Y * 2)
    display = PenaltyPathDisplay.from_estimator(search)
    assert (display.name, display.best) == ("l1", (0, int(search.l1_ == 1.0)))


def test_path_needs_scores():
    with pytest.raises(ValueError, match="needs a fitted search with scores_, such as CRFTaggerCV"):
        PenaltyPathDisplay.from_estimator(CRFTagger())
    with pytest.raises(ValueError, match=r"one column for each of the 2 values.*shape \(3, 3\)"):
        PenaltyPathDisplay([1, 2], np.zeros((3, 3)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"values": ["a", "b"]}, "values must be an array of numbers"),
        ({"values": [[1, 2]]}, r"values must be a list of numbers; got shape \(1, 2\)"),
        ({"scores": [["a", "b"]]}, "scores must be an array of numbers"),
        ({"best": (0, 2)}, r"best must be a position .* below \(1, 2\); got \(0, 2\)"),
        ({"best": 1}, "best must be"),
        ({"curves": ["a", "b"]}, "curves must hold 1 names"),
    ],
)
def test_wrong_paths(options, message):
    with pytest.raises(ValueError, match=message):
        PenaltyPathDisplay(**({"values": [1, 2], "scores": np.zeros((3, 2))} | options))


def test_confusions_of_predicted_spans_and_of_labels_that_are_no_spans():
    found = [[Span(0, 1, "x", 0.9)], [Span(1, 2, "y", None)]]
    y = [["B-x", "O"], ["O", "B-x"]]
    display = SpanConfusionDisplay.from_predictions(y, found)
    assert display.counts[:2, :2].tolist() == [[1, 1], [0, 0]]
    for one in (1, True, np.int8(1), None):
        with pytest.raises(ValueError, match="Segment 0 of sequence 1 of y_true must be"):
            SpanConfusionDisplay.from_predictions([["O"], [one]], [["O"], ["O"]])
