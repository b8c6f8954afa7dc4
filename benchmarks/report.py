"""One report of training and inference beside their peers: docs/benchmarks_report.rst.

Runs the programs named, or all, and writes what they measured, with the machine, as JSON and as a
page. Parts that were measured before stay.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from _report import write_page

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
PROGRAMS = {
    "crfsuite": ["bench_crfsuite.py", "--full", "--rounds", "1"],
    "inference": ["bench_inference.py"],
    "training": ["bench_training.py", "--plot", "curves.png"],
    "defaults": ["bench_defaults.py", "--plot", "defaults.png"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", metavar="program", help=", ".join(PROGRAMS))
    parser.add_argument("--quick", action="store_true", help="little data: does it run?")
    parser.add_argument("--folder", type=Path, default=DOCS, help="where the page goes")
    options = parser.parse_args()
    figures, static = options.folder / "benchmarks.json", options.folder / "_static"
    for name in options.programs or PROGRAMS:
        script, *arguments = PROGRAMS[name]
        arguments = [static / word if word.endswith(".png") else word for word in arguments]
        arguments += ["--json", figures, *["--quick"] * options.quick]
        subprocess.run([sys.executable, HERE / script, *arguments], check=True)
    pictures = {path.stem: f"_static/{path.name}" for path in static.glob("*.png")}
    write_page(figures, options.folder / "benchmarks_report.rst", pictures)


if __name__ == "__main__":
    main()
