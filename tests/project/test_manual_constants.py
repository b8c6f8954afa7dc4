"""Constants that the manual quotes are those of the code; figures of speed, those of the report.

A line of the table is a page, a regular expression whose groups are the numbers of a sentence, and
what the code has. Who rewrites a sentence rewrites its line here, or removes both.
"""

import inspect
import json
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import sklseq
from sklseq._lib.cpu import load_kernel

ROOT = Path(__file__).resolve().parents[2]
REPORT = {
    part: content["rows"]
    for part, content in json.loads((ROOT / "docs/benchmarks.json").read_text())["parts"].items()
}


def constant(module, name):
    """Of a compiled module there may be the build for one processor level only."""
    return getattr(load_kernel(f"sklseq.{module}"), name)


def default(estimator, parameter):
    return inspect.signature(getattr(sklseq, estimator)).parameters[parameter].default


def written(path, pattern):
    """A number that has no name in the code: every place where it is written."""
    text = (ROOT / "sklseq" / path).read_text(encoding="utf-8")
    (value,) = {number(found) for found in re.findall(pattern, text)}
    return value


def number(text):
    """10^{-150}, 1,000, 10_000, 2e-4 or 36."""
    power = re.fullmatch(r"(\d+)\^\{(-?\d+)\}", text)
    return float(power[1]) ** int(power[2]) if power else float(re.sub("[,_]", "", text))


def solver_bytes_a_weight():
    scores = SimpleNamespace(
        n_weights=10**6,
        dtype=np.dtype(float),
        design=SimpleNamespace(new_buffer=lambda: np.zeros(0)),
    )
    return constant("estimators.sources.shard_source", "solver_bytes")(scores, 1) / scores.n_weights


def listed_from(what):
    """From how many labels on, and up to which share of the pairs, lists are faster than a matrix."""
    share, less = constant("inference.chain.sparse_transitions", "LIMITS")[what, "float64"]
    return round(less / share, -1), share


def effort(what):
    return constant("estimators.hmsvm.margin_problem", "EFFORT")["linear"][what]


def minimum(package):
    """The oldest release of a dependency that is allowed."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (found,) = re.findall(rf"{package}>=([\d.]+)", " ".join(wanted))
    return float(found)


def minimum_python():
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    return int(wanted.removeprefix(">=3."))


def n_templates():
    """Of TemplateFeatures with the columns of CRFsuite's example; marks of ends are none."""
    features = sklseq.features.TemplateFeatures(columns=["w", "pos"])
    return sum("[" in t for t in features.fit([{"w": ["a"], "pos": ["b"]}]).templates_)


WORDS = {"eighth": 1 / 8, "quarter": 1 / 4, "third": 1 / 3, "three": 3, "four": 4}
TABLE = [
    ("maths", r"varepsilon = (10\^\{-\d+\})` in\s+double precision \(:math:`(10\^\{-\d+\})` in single",
     lambda: constant("inference.kernels._chain", "MIX").values()),
    ("maths", r"rows can lose a factor :math:`(10\^\{-\d+\})` each",
     lambda: [constant("inference.kernels._chain", "MIX")[np.dtype(float)]]),
    ("maths", r"it is at least\s+:math:`(10\^\{-\d+\})` \(:math:`(10\^\{-\d+\})` in single",
     lambda: constant("inference.kernels._chain", "FLOOR").values()),
    ("maths", r"result below :math:`(2\^\{-\d+\})` of its first sum",
     lambda: [1 / written("inference/kernels/_sparse.pxd", r"return 1\.0 / (\d+)")]),
    ("maths", r"Wolfe's conditions with :math:`\\gamma_1 = (10\^\{-\d+\})` and :math:`\\gamma_2 = ([\d.]+)`",
     lambda: [constant("solvers._search", name) for name in ("SUFFICIENT_DECREASE", "CURVATURE")]),
    ("maths", r"largest residual r is below :math:`\\varepsilon = ([\d.]+)` move",
     lambda: [constant("objectives.likelihood.stochastic", "ALMOST")]),
    ("maths", r":math:`(10\^\{-\d+\})` of each entry", lambda: [constant("inference.chain.expectation", "AGREE")]),
    ("maths", r"result is then within :math:`(10\^\{-\d+\})` of the exact",
     lambda: [constant("inference.chain.expectation", "AGREE")]),
    ("crf", r"(\d+) passes of stochastic steps, sequence by sequence", lambda: [constant("estimators.crf.crf_problem", "PASSES")]),
    ("crf", r"For ([\d,]+) sparse rows or more, ``\"auto\"`` takes ``\"adagrad\"``, or ``\"dual\"`` if ``l2`` is at least an (eighth)",
     lambda: [constant("estimators.crf.crf_problem", "MANY_ROWS"), constant("estimators.crf.crf_problem", "STRONG_L2")]),
    ("crf", r"From ([\d,]+) to 10,000 sparse rows, it takes ``\"dual\"`` if ``l2`` is at least a (quarter)",
     lambda: [constant("estimators.crf.crf_problem", "SOME_ROWS"), constant("estimators.crf.crf_problem", "STRONGER_L2")]),
    ("crf", r"Below some (\d+) labels, or where more than a (third) of the pairs",
     lambda: listed_from("sums")),
    ("crf", r"more than (four) times scikit-learn's\s+``working_memory``", lambda: [constant("estimators.crf.crf_problem", "DUAL_SHARE")]),
    ("zscore", r"features must be few, at most (\d+)", lambda: [constant("estimators.zscore.zscore_problem", "MAX_WEIGHTS")]),
    ("zscore", r"up to (\d+) million, each sequence", lambda: [constant("estimators.zscore.zscore_cv", "FEW_ENTRIES") // 10**6]),
    ("zscore", r"Up to (\d+) features, one Cholesky", lambda: [constant("estimators.zscore.ridge_systems", "DIRECT")]),
    ("zscore", r"up to (\d+) of the\s+most frequent", lambda: [constant("objectives.zscore.elimination", "FREQUENT")]),
    ("zscore", r"single precision where ``tol`` is (\S+) or", lambda: [constant("estimators.zscore.ridge_systems", "TOL_OF_FLOAT32")]),
    ("zscore", r"the fraction ``tol`` = (\S+) of their size", lambda: [default("ZScoreTagger", "tol")]),
    ("zscore", r"dense rows of up to\s+(\d+) columns", lambda: [constant("estimators.zscore.ridge_systems", "FACTORISED")]),
    ("zscore", r"sizes of\s+columns differ by more than (\S+), of", lambda: [constant("_lib.column_sizes", "UNITS")]),
    ("zscore", r"found to (\d+) % by some ten forward-backward passes over at most\s+([\d,]+) rows",
     lambda: [100 * constant("estimators.zscore.warm_start", "PRECISION"), constant("estimators.zscore.warm_start", "ROWS")]),
    ("hmsvm", r"looked for up to\s+(three) times, with up to (three) steps after each search",
     lambda: [effort("n_searches"), effort("n_steps")]),
    ("hmsvm", r"up to (\d+) passes follow", lambda: [effort("n_known_passes")]),
    ("hmsvm", r"one search and up to (\d+) steps",
     lambda: [constant("estimators.hmsvm.margin_problem", "EFFORT")["other"]["n_steps"]]),
    ("hmsvm", r"above some ([\d,]+) rows, the Gram matrix no longer fits",
     lambda: [np.sqrt(default("HMSVMTagger", "cache_size") * 1e6 / 8).round(-3)]),
    ("hmsvm", r"to a relative gap of ([\d.]+)", lambda: [default("HMSVMTagger", "tol")]),
    ("hmsvm", r"the sequence of a row has (\d+) rows on average: ([\d,]+) with the linear",
     lambda: [constant("estimators.hmsvm.solver_choice", name) for name in ("LONG", "LONG_SPARSE")]),
    ("hmsvm", r"times the number of labels, are at most (\d+) \((\d+) for\s+sparse rows\)",
     lambda: [constant("estimators.hmsvm.solver_choice", name) for name in ("FEW_WEIGHTS", "FEW_SPARSE")]),
    ("hmsvm", r"at most (\d+) dense columns or ([\d,]+) columns times labels",
     lambda: [constant("estimators.hmsvm.solver_choice", name) for name in ("FEW_COLUMNS", "MOST_WEIGHTS")]),
    ("long", r"the last (\d+) √T rows", lambda: [constant("objectives.likelihood.passes", "WHOLE")]),
    ("long", r"more blocks wait, up to (\d+) MB", lambda: [constant("objectives.likelihood.passes", "WAITING") / 2**20]),
    ("long", r"until then, beyond (\d+) MiB, a temporary file", lambda: [constant("estimators.block_sums", "IN_MEMORY") / 2**20]),
    ("long", r"no longer than a block of ([\d,]+) rows", lambda: [constant("data.row_blocks", "BLOCK_ROWS")]),
    ("segments", r"of its minimum \(5 % for ``tol=(\S+?)``\)", lambda: [default("SemiCRFSegmenter", "tol")]),
    ("benchmarks", r"the solver +(\d+) bytes a weight", lambda: [solver_bytes_a_weight()]),
    ("benchmarks", r"chunking templates \((\d+) attributes a token",
     lambda: [n_templates()]),
    ("benchmarks", r"CRFsuite's (\d+) templates", lambda: [n_templates()]),
    ("start", r"Python 3\.(\d+) or newer", lambda: [minimum_python()]),
    ("../README", r"22 labels, CRFsuite's (\d+) templates", lambda: [n_templates()]),
    ("../README", r"Python ≥ 3\.(\d+)\.", lambda: [minimum_python()]),
    ("../CONTRIBUTING", r"Python 3\.(\d+) or newer", lambda: [minimum_python()]),
    ("reliability", r"- NumPy ([\d.]+)\.0, SciPy ([\d.]+)\.0, scikit-learn ([\d.]+)\.0, joblib ([\d.]+)\.0",
     lambda: [minimum(name) for name in ("numpy", "scipy", "scikit-learn", "joblib")]),
    ("reliability", r"- (\d+) models of an earlier state", lambda: [len([*(ROOT / "tests/golden").glob("*.pkl")])]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("page", "pattern", "value"),
    [pytest.param(*line, id=f"{line[0]}: {line[1][:30]}") for line in TABLE],
)
def test_a_constant_of_the_manual_is_that_of_the_code(page, pattern, value):
    name = f"{page[3:]}.md" if page.startswith("../") else f"docs/{page}.rst"
    pattern = re.sub(r" \+?", r"\\s+", pattern)  # a line may end at any space
    found = list(re.finditer(pattern, (ROOT / name).read_text(encoding="utf-8")))
    assert len(found) == 1, f"{len(found)} sentences of {name} match {pattern!r}"
    quoted = [WORDS.get(group) or number(group) for group in found[0].groups()]
    # A word such as "a third" is as exact as words are.
    assert quoted == pytest.approx(
        list(value()), rel=0.1 if "third" in found[0].groups() else 1e-12
    )


def test_the_limits_of_scaled_arithmetic_stand_in_one_place():
    floor = constant("inference.kernels._chain", "FLOOR")[np.dtype(float)]
    assert constant("inference.kernels._expectation", "SMALLEST_LOG") == np.log(floor)
    copies = [
        p for p in (ROOT / "sklseq").rglob("*.p[yx]*") if re.search("1e-(280|150)", p.read_text())
    ]
    assert {p.name for p in copies} <= {"_recursions.pxd", "_chain.pyx"}


# ---- figures of speed and memory, in the README and in the manual ------------------------------


def as_shown(value, text):
    return f"{value:.{len(text.partition('.')[2])}f}"


ROWS = [  # end of the question in the tables, row of the report, unit of what is in brackets
    ("iterations, 1 thread", "dual to objective", 1),
    ('solver="lbfgs"`+, 2 threads', "lbfgs to objective", 1),
    ("objective with gradient, 1 thread", "evaluation, float64, 1 thread", 1e-3),
    ("objective with gradient, 2 threads", "evaluation, float64, 2 threads", 1e-3),
    ("tagging from token columns", "tagging from token columns", 1e6),
    ("tagging from prepared features", "tagging from prepared features", 1e6),
    ("marginals", "marginals", None),
    ("memory of a fit above the data", "peak memory of a fit above the data", 1),
]


@pytest.mark.parametrize("page", ["README.md", "docs/benchmarks.rst"])
@pytest.mark.parametrize(("end", "question", "unit"), ROWS, ids=[row[1] for row in ROWS])
def test_figures_of_the_tables_are_those_of_the_report(page, end, question, unit):
    text = (ROOT / page).read_text(encoding="utf-8")
    cell = r"[ |]+([\d.]+) ×" + (r" \(([\d.,]+) [^)]*\)" if unit else "")
    (found,) = re.finditer(end + cell + cell, text)
    threads = end[-9:] if "solver" in end else "1 thread" if question[:2] == "eg" else ""
    for k, states in enumerate(("all", "observed")):
        rows = [
            r[2:]
            for r in REPORT["crfsuite"]
            if r[1] == states and r[0].startswith(question) and threads in r[0]
        ]
        ours, _, ratio = rows[0]
        shown = found.groups()[k * len(found.groups()) // 2 :]
        assert shown[0] == as_shown(ratio, shown[0])
        if unit:
            assert shown[1] == as_shown(ours / unit, shown[1])


def test_the_first_claim_of_the_readme_is_in_its_table():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (found,) = re.finditer(
        r"CoNLL-2000 in ([\d.]+) to ([\d.]+) seconds where CRFsuite takes\s+(\d+) to (\d+)", text
    )
    rows = [r[2:4] for r in REPORT["crfsuite"] if re.match("dual .* 1 thread", r[0])]
    ours, theirs = (sorted(values) for values in zip(*rows))
    assert [as_shown(v, t) for v, t in zip([*ours, *theirs], found.groups())] == [*found.groups()]


def test_where_memory_is_not_less_is_said():
    text = (ROOT / "docs/benchmarks.rst").read_text(encoding="utf-8")
    section = text.partition("Cases without a gain")[2].partition("Run them yourself")[0]
    (found,) = re.finditer(
        r"takes ([\d,]+) MB above the data where CRFsuite takes\s+([\d,]+); with all states\s+"
        r"([\d,]+) and ([\d,]+)",
        section,
    )
    rows = [r for r in REPORT["crfsuite"] if r[0].startswith("peak memory")]
    values = [value for r in sorted(rows, key=lambda r: r[1], reverse=True) for value in r[2:4]]
    assert [f"{value:,.0f}" for value in values] == list(found.groups())
