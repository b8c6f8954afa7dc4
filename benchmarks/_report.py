"""Tables of a report: printed in Markdown while they grow, kept as JSON, shown as a page.

A program calls `table` for each of its tables and `run` with its parts; `write_page` makes
reStructuredText of what was kept.
"""

import argparse
import json
import os
import platform
from inspect import cleandoc
from pathlib import Path

import numpy as np
import scipy
import sklearn
from _common import NoData

import sklseq

KEPT = {}


def table(part, *names):
    """Print a header; returns a function that prints and keeps one row."""
    print(f"\n## {part}\n\n| " + " | ".join(names) + " |\n|" + "---|" * len(names), flush=True)
    rows = KEPT.setdefault(part, {"columns": names, "rows": []})["rows"]

    def row(*cells):
        rows.append(cells)
        print("| " + " | ".join(map(shown, cells)) + " |", flush=True)

    return row


def shown(cell):
    if isinstance(cell, bool | np.bool_):
        return "yes" if cell else "no"
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:,.0f}" if abs(cell) >= 1e4 else f"{cell:,.4g}"


def machine():
    """What the figures come from."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    model = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {"processor": (model or [platform.processor()])[0], "cores": os.cpu_count(),
            "Python": platform.python_version(), "NumPy": np.__version__,
            "SciPy": scipy.__version__, "scikit-learn": sklearn.__version__,
            "sklseq": sklseq.__version__}  # fmt: skip


def keep(path):
    """Add what the tables have by now to a JSON file; parts that are there are replaced."""
    before = json.loads(path.read_text()) if path.exists() else {"parts": {}}
    before |= {"machine": machine(), "parts": before["parts"] | KEPT}
    path.write_text(json.dumps(before, indent=1, default=lambda x: x.item()) + "\n")


def run(doc, parts, add_options=lambda parser: None):
    """The command line of a program with parts: runs those named, or all; returns its options."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(parts))
    parser.add_argument("--quick", action="store_true", help="little data: does it run?")
    parser.add_argument("--json", type=Path, help="file to keep the figures in")
    add_options(parser)
    options = parser.parse_args()
    for name in options.parts or parts:
        try:
            parts[name](options.quick)
        except NoData as missing:
            print(f"\n{name} left out: {missing}")
            continue
        KEPT[name]["what"] = parts[name].__doc__
        if options.json:
            keep(options.json)
    return options


def parts_of(module):
    """The functions ``part_...`` of a program, by name."""
    return {name[5:]: value for name, value in module.items() if name.startswith("part_")}


def write_page(json_path, path, pictures):
    """A page of all tables kept; a picture after the part that it belongs to."""
    kept = json.loads(json_path.read_text())
    lines = ["Report", "======", "", ".. Written by ``make bench``; not by hand.", ""]
    lines += [", ".join(f"{name}: {value}" for name, value in kept["machine"].items()) + ".", ""]
    for part, found in kept["parts"].items():
        lines += [part, "-" * len(part), "", cleandoc(found["what"]), ""]
        lines += [".. list-table::", "   :header-rows: 1", ""]
        for cells in [found["columns"], *found["rows"]]:
            marks = ["*"] + [" "] * (len(cells) - 1)
            lines += [f"   {m} - {shown(cell)}" for m, cell in zip(marks, cells)]
        lines.append("")
        if part in pictures:
            lines += [
                f".. image:: {pictures[part]}",
                f"   :alt: Figure of the measurements in part {part} of this report.",
                "",
            ]
    path.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
