"""Sphinx settings; `make docs` builds."""

import os
import re
import warnings

import matplotlib
import pooch
from docutils.nodes import SkipNode
from latex2mathml.converter import convert
from sklearn.exceptions import ConvergenceWarning

import sklseq

matplotlib.use("agg")
# Terms of corpora forbid to publish their text: examples that print text generate their data here.
# Those that call fetch_* print figures only (tests/project/test_examples.py).
os.environ.pop("SKLSEQ_DATA", None)
pooch.get_logger().setLevel("WARNING")  # paths of this machine

project = "sklseq"
author = "The sklseq developers"
copyright = author
release = version = sklseq.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "matplotlib.sphinxext.plot_directive",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
# Links to other projects' pages need their lists of names from the network: INTERSPHINX=1 make docs
if os.environ.get("INTERSPHINX"):
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "sklearn": ("https://scikit-learn.org/stable", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "scipy": ("https://docs.scipy.org/doc/scipy", None),
        "matplotlib": ("https://matplotlib.org/stable", None),
    }
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
# Formulas become MathML, which browsers draw themselves: no script, no network.
html_math_renderer = "mathml"
nitpicky = True
# Classes of other projects that signatures and base classes name.
nitpick_ignore_regex = [(r"py:.*", r"(sklearn|numpy|np|scipy|matplotlib|dask|collections)\..*")]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "_static"]
suppress_warnings = ["config.cache"]

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
# Examples of docstrings that import matplotlib show what they draw.
numpydoc_use_plots = True
plot_formats = [("png", 100)]
plot_include_source = True
plot_html_show_formats = plot_html_show_source_link = False
myst_heading_anchors = 2

# Pages without running examples: NO_GALLERY=1 make docs
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"(__init__|tag_server)\.py",  # a program, part of an example
    "abort_on_example_error": False,
    "only_warn_on_example_error": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "min_reported_time": 0,
    "reference_url": {"sklseq": None},
    "backreferences_dir": "generated/examples",
    "doc_module": ("sklseq",),
    "plot_gallery": not os.environ.get("NO_GALLERY"),
    "write_computation_times": False,
    "image_scrapers": ("matplotlib",),
    "capture_repr": ("_repr_html_",),  # no <... object at 0x...>
    "within_subsection_order": "FileNameSortKey",
}
warnings.filterwarnings("error", category=ConvergenceWarning)  # an example that does not converge
warnings.filterwarnings("ignore", category=UserWarning, message=".*non-interactive.*")

html_theme = "pydata_sphinx_theme"
html_title = "sklseq"
html_static_path = ["_static"]
html_css_files = ["sklseq.css"]
html_show_sourcelink = False
html_theme_options = {
    "show_prev_next": True,
    "navigation_with_keys": False,
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": ["page-toc"],
    "logo": {"text": f"sklseq {release}"},
}
html_sidebars = {
    page: []
    for page in (
        "index",
        "start",
        "howto",
        "comparison",
        "maths",
        "equations",
        "migration",
        "benchmarks",
        "reproduction",
        "contributing",
        "versions",
        "changelog",
    )
}


def mathml(text, display="inline"):
    """The converter raises primes, whose glyph is raised already: they become too small to see."""
    prime = '<mo lspace="0" rspace="0">&#x02032;</mo>'
    out = convert(text, display=display)
    letter, index, raised = (
        "(<mi>[^<]+</mi>)",
        "(<mrow>(?:(?!<mrow>).)*?</mrow>)",
        "<mi>&#x02032;</mi>",
    )
    out = re.sub(
        f"<msubsup>{letter}{index}{raised}</msubsup>",
        rf"<msub><mrow>\1{prime}</mrow>\2</msub>",
        out,
    )
    return re.sub(f"<msup>{letter}{raised}</msup>", rf"<mrow>\1{prime}</mrow>", out)


def inline_formula(translator, node):
    translator.body.append(mathml(node.astext()))
    raise SkipNode


def displayed_formula(translator, node):
    text = node.astext()
    if "&" in text and "\\begin" not in text:
        text = f"\\begin{{split}}{text}\\end{{split}}"
    translator.body.append(f'<div class="formula">{mathml(text, "block")}</div>\n')
    raise SkipNode


def leave_out(app, what, name, obj, skip, options):
    """Class pages show what we wrote, inherited or not, and nothing of other packages."""
    function = getattr(obj, "fget", obj)
    module = getattr(function, "__module__", None) or "sklseq"
    foreign = not module.startswith("sklseq") or type(obj).__module__.startswith("sklearn")
    field = type(obj).__name__ == "_tuplegetter"
    return True if foreign or field or name.startswith("_") else None


def keep_formulas(app, what, name, obj, options, lines):
    """Indented formulas of docstrings stand as they are typed, not as quotations and lists."""
    out, formula = [], False
    for k, line in enumerate(lines):
        indented = line.startswith("    ")
        if line and not indented:
            formula = False
        before = [text for text in lines[:k] if text]
        after_text = k > 1 and not lines[k - 1] and not before[-1].startswith((" ", ">>>", "-"))
        if indented and not formula and after_text and not before[-1].endswith("::"):
            formula = True
            out += [".. code-block:: none", ""]
        out.append(line)
    lines[:] = out


def setup(app):
    app.add_html_math_renderer("mathml", (inline_formula, None), (displayed_formula, None))
    app.connect("autodoc-process-docstring", keep_formulas, priority=100)
    app.connect("autodoc-skip-member", leave_out)
