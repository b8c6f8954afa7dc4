"""No public parameter that is a number takes a boolean: annotations say which are numbers."""

import ast
import functools
import importlib
import inspect
import textwrap

import numpy as np
import pytest

import sklseq
from sklseq import OnlineDecoder, SemiCRFSegmenter, display, features
from sklseq.inference import SegmentSpans
from tests.project.test_public_api import MODULES

X = 3 * [[["a"], ["b"], ["a"]], [["b"], ["b"], ["a"]]]
Y = 3 * [["B-x", "O", "B-x"], ["O", "O", "B-x"]]
# Numbers for which True and False may stand, and functions that users do not call.
FREE = {"verbose", "random_state", "zero_division", "order", "fill"}
INTERNAL = {
    "OnlineStream", "RowBlocks.read", "RowBlocks.rows", "RowTransitions.for_kernels",
    "RowTransitions.part", "Shards.file_size", "Shards.labelled", "Shards.read",
}  # fmt: skip
OFF = {"prefixes", "suffixes", "first", "last"}  # False stands for none
# Parameters that have an effect beside others only.
BESIDE = {
    "validation_fraction": {"early_stopping": True}, "n_landmarks": {"kernel": "rbf"},
    "scale": {"y": Y}, "tune_latency.cv": {"target_latency": 1.0},
}  # fmt: skip
SCORES = np.zeros((3, 2)), np.zeros((2, 2))
SPANS = SegmentSpans(*map(np.array, ([2], [0, 1], [0], [0], [2]))), [[1.0]], [[0.0]]


def is_number(annotation):
    return bool({"int", "float"} & set(map(str.strip, annotation.split("|"))))


def written_annotations(function):
    """The annotation of each parameter as it is written, so that aliases stay names."""
    if not inspect.isfunction(inspect.unwrap(function)):
        return {}  # of NumPy or `object`
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return {arg.arg: ast.unparse(arg.annotation) for arg in given if arg.annotation is not None}


def public_functions():
    """(name, class or None, function) of public functions, classes, and their methods."""
    for module in (importlib.import_module(m) for m in MODULES if "compat" not in m):
        for name in module.__all__:
            value = getattr(module, name)
            yield name, value if inspect.isclass(value) else None, value
            for member in (m for m in dir(value) if inspect.isclass(value) and m[0] != "_"):
                found = inspect.getattr_static(value, member)
                found = getattr(found, "__func__", found)
                if inspect.isfunction(found):
                    yield f"{name}.{member}", value, found


def cases():
    """(function, parameter) of all numbers, by the name of the function."""
    found = set()
    for name, owner, function in public_functions():
        if not callable(function) or name in INTERNAL:
            continue
        method = function.__init__ if function is owner else function
        for parameter, annotation in written_annotations(method).items():
            if is_number(annotation) and parameter not in FREE:
                found.add((name, parameter))
    return sorted(found)


@functools.cache
def fitted(name):
    if name == "SegmentReranker":
        return sklseq.SegmentReranker(SemiCRFSegmenter(), cv=2, text=False).fit(X, Y)
    return getattr(sklseq, name)().fit(X, Y)


def decoder():
    return OnlineDecoder(fitted("CRFTagger"))


async def no_items():
    yield None


def new(name, **given):
    """Use of an estimator's parameters."""
    made = getattr(sklseq, name, None) or getattr(features, name)
    made = made({"x": ["a"]}, **given) if name == "LexiconFeatures" else made(**given)
    if hasattr(made, "fit"):
        made.fit(X, Y)
    else:
        list(made.split([np.zeros((9, 1))]))


@functools.cache
def others():
    """How to call what is no constructor of an estimator, nor a method of a fitted one."""
    stream, pool = fitted("OnlineDecoder").stream(), fitted("OnlineDecoder").pool()
    rows, marginals = sklseq.RowBlocks(np.eye(3)), display.MarginalsDisplay(np.ones((1, 1)), ["a"])
    arguments = {
        "LatencyAccuracyDisplay.from_estimator": (
            display.LatencyAccuracyDisplay.from_estimator, decoder(), X
        ),
        "MarginalsDisplay.plot": (marginals.plot,),
        "OnlineStream.commit": (stream.commit,),
        "RowBlocks.pieces": (functools.partial(rows.pieces, labels=[0, 1, 2]),),
        "SegmentationDisplay.plot": (display.SegmentationDisplay([["a"]], [[]]).plot,),
        "SpansDisplay.plot": (display.SpansDisplay(["a"], [[]]).plot,),
        "Shards": (sklseq.Shards, [(X, Y)]),
        "StreamPool.commit": (pool.commit,),
        "calibration_report": (sklseq.online.calibration_report, fitted("OnlineDecoder"), X, Y),
        "count_active_potentials": (
            features.count_active_potentials, features.SegmentFeatures().fit_transform(X, Y)
        ),
        "decode_online": (sklseq.inference.decode_online, *SCORES),
        "nbest": (sklseq.inference.nbest, *SCORES),
        "OnlineDecoder.aiter": (fitted("OnlineDecoder").aiter, no_items()),
        "read_conll": (sklseq.datasets.read_conll, "no file"),
        "read_kdd99": (sklseq.datasets.read_kdd99, "no file"),
        "sample": (sklseq.inference.sample, *SCORES),
        "segments_to_labels": (sklseq.segments_to_labels, []),
        "span_fbeta": (sklseq.metrics.span_fbeta, Y, Y),
        "span_report": (sklseq.metrics.span_report, Y, Y),
        "top_features": (sklseq.inspection.top_features, fitted("CRFTagger")),
        "tune_latency": (sklseq.online.tune_latency, decoder(), X, Y),
        "uncertain_rows": (sklseq.inspection.uncertain_rows, fitted("CRFTagger"), X),
        "uncertainty": (sklseq.inspection.uncertainty, fitted("CRFTagger"), X),
    }  # fmt: skip
    for name in ("citations", "connections", "contacts"):
        arguments[f"make_{name}"] = (getattr(sklseq.datasets, f"make_{name}"),)
    for name in ("fetch_conll2000", "fetch_conll2002"):
        arguments[name] = (getattr(sklseq.datasets, name),)
    for name in ("closure", "forward_backward", "nbest", "sample", "viterbi"):
        arguments[f"segment_{name}"] = (getattr(sklseq.inference, f"segment_{name}"), *SPANS)
    arguments["make_latency_scorer"] = (sklseq.online.make_latency_scorer,)
    return arguments


def use(name, **given):
    if name in others():
        function, *arguments = others()[name]
        return function(*arguments, **given)
    owner, _, method = name.partition(".")
    if not method:
        return new(owner, **given)
    bound = getattr(fitted(owner), method)
    takes_X = "X" in inspect.signature(bound).parameters
    answer = bound(*([X] if takes_X else []), **given)
    return answer.__anext__().send(None) if method == "aiter" else answer


@pytest.mark.parametrize(("name", "parameter"), cases())
@pytest.mark.parametrize("value", [True, False])
def test_a_boolean_is_no_number(name, parameter, value):
    if parameter in OFF and not value:
        pytest.skip("False stands for none")
    beside = BESIDE.get(parameter, BESIDE.get(f"{name}.{parameter}", {}))
    given = {parameter: value, **beside}
    with pytest.raises((TypeError, ValueError), match=rf"\b{parameter}\b.* must .*{value}"):
        use(name, **given)
