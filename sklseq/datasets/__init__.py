"""Read and write column files and logs; generate labelled data, or fetch corpora.

Imports: _lib.
"""

from ._citations import make_citations
from ._conll import read_conll, write_conll
from ._conllu import read_conllu
from ._connections import Connections, make_connections, read_kdd99
from ._contacts import make_contacts
from ._fetch import fetch_conll2000, fetch_conll2002
from ._tagged import read_tagged

__all__ = [
    "Connections",
    "fetch_conll2000",
    "fetch_conll2002",
    "make_citations",
    "make_connections",
    "make_contacts",
    "read_conll",
    "read_conllu",
    "read_kdd99",
    "read_tagged",
    "write_conll",
]
