"""Sphinx settings; `make docs` builds."""

import sklseq

project = "sklseq"
author = "The sklseq developers"
copyright = author
release = version = sklseq.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
]
autosummary_generate = True
numpydoc_show_class_members = True
numpydoc_show_inherited_class_members = False
numpydoc_class_members_toctree = False
autodoc_typehints = "none"
exclude_patterns = ["_build", "generated/*.part"]
html_theme = "pydata_sphinx_theme"
html_title = "sklseq"
html_theme_options = {"show_prev_next": False, "navigation_with_keys": False}
html_sidebars = {"**": []}
