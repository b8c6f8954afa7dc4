"""Readers and writers of files and tables, generators of labelled data, and corpora.

Imports: _lib, data.
"""

from typing import TYPE_CHECKING

from sklseq._lib.lazy_names import lazy_names

if TYPE_CHECKING:  # the names below, for type checkers
    from sklseq.datasets._alignment import align_spans, token_offsets
    from sklseq.datasets._brat import read_brat
    from sklseq.datasets._citations import make_citations
    from sklseq.datasets._conll import read_conll, write_conll
    from sklseq.datasets._conllu import read_conllu
    from sklseq.datasets._connections import Connections, make_connections, read_kdd99
    from sklseq.datasets._contacts import make_contacts
    from sklseq.datasets._fetch import fetch_conll2000, fetch_conll2002
    from sklseq.datasets._frames import from_docs, from_frame, from_rows
    from sklseq.datasets._tagged import read_tagged

__all__ = [
    "Connections",
    "align_spans",
    "fetch_conll2000",
    "fetch_conll2002",
    "from_docs",
    "from_frame",
    "from_rows",
    "make_citations",
    "make_connections",
    "make_contacts",
    "read_brat",
    "read_conll",
    "read_conllu",
    "read_kdd99",
    "read_tagged",
    "token_offsets",
    "write_conll",
]

# Loaded when first used: reading a column file needs no scikit-learn.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "_alignment": ("align_spans", "token_offsets"),
        "_brat": ("read_brat",),
        "_citations": ("make_citations",),
        "_conll": ("read_conll", "write_conll"),
        "_conllu": ("read_conllu",),
        "_connections": ("Connections", "make_connections", "read_kdd99"),
        "_contacts": ("make_contacts",),
        "_fetch": ("fetch_conll2000", "fetch_conll2002"),
        "_frames": ("from_docs", "from_frame", "from_rows"),
        "_tagged": ("read_tagged",),
    },
)
