"""Read and write column files and logs; generate labelled data that needs no download."""

from ._citations import make_citations
from ._conll import read_conll, write_conll
from ._connections import Connections, make_connections, read_kdd99
from ._contacts import make_contacts
from ._tagged import read_tagged

__all__ = [
    "Connections",
    "make_citations",
    "make_connections",
    "make_contacts",
    "read_conll",
    "read_kdd99",
    "read_tagged",
    "write_conll",
]
