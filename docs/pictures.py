"""Pictures of the first page, for light and dark pages, into docs/_static: ``make pictures``.

``fields`` shows what the program of the first page finds, also as HTML; ``speed`` shows figures of
benchmarks.json.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger
from sklseq.datasets import make_citations
from sklseq.display import SpansDisplay
from sklseq.features import TokenFeatures, WindowFeatures

DOCS = Path(__file__).parent
STYLES = {"light": "default", "dark": "dark_background"}
# Rows of benchmarks.json: seconds to the objective of CRFsuite, and millions of tokens per second.
PANELS = {
    "training, seconds": ("dual to objective", "1 thread"),
    "tagging, million tokens a second": ("tagging from token columns", ""),
}


def fields():
    X, y = make_citations(300, random_state=0)
    X_train, X_test, y_train, _ = train_test_split(X, y, random_state=0)
    model = make_pipeline(WindowFeatures(TokenFeatures()), CRFTagger(constraints="iob2"))
    model.fit(X_train, y_train)
    return SpansDisplay.from_estimator(model, X_test[:4])


def speeds(panel):
    """(states, sklseq, python-crfsuite) of a panel."""
    data = json.loads((DOCS / "benchmarks.json").read_text(encoding="utf-8"))
    start, end = PANELS[panel]
    scale = 1e-6 if "million" in panel else 1
    for name, states, ours, theirs, _ in data["parts"]["crfsuite"]["rows"]:
        if name.startswith(start) and end in name:
            yield f"{states} states", ours * scale, theirs * scale


def draw_speed():
    figure, axes = plt.subplots(2, 1, figsize=(5, 3.4), layout="constrained")  # read on telephones
    for ax, panel in zip(axes, PANELS):
        for k, (states, *values) in enumerate(speeds(panel)):
            for j, (value, color) in enumerate(zip(values, ("#0072B2", "#999999"))):
                at = 2.6 * k + j
                ax.barh(at, value, color=color, height=0.9)
                name = f"{('sklseq', 'CRFsuite')[j]}, {states}"
                ax.text(value, at, f"  {value:.3g}", va="center", fontsize=9)
                ax.text(0, at, f"{name}  ", va="center", ha="right", fontsize=9)
        ax.set_title(panel, fontsize=10)
        ax.set(yticks=[], xticks=[])
        ax.invert_yaxis()
        ax.margins(x=0.15)
        ax.spines[:].set_visible(False)
    return figure


def main():
    found = fields()
    html = found._repr_html_() + "\n"
    (DOCS / "_static" / "fields.html").write_text(html, encoding="utf-8")
    pictures = {"fields": lambda: found.plot(width=78).figure_, "speed": draw_speed}
    for style, name in STYLES.items():
        with plt.style.context(name):
            for picture, draw in pictures.items():
                figure = draw()
                path = DOCS / "_static" / f"{picture}-{style}.png"
                figure.savefig(path, dpi=160, transparent=True)
                plt.close(figure)


if __name__ == "__main__":
    main()
