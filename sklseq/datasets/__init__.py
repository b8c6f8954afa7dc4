"""Read and write column files and logs; generate labelled data that needs no download."""

from ._conll import read_conll, write_conll
from ._connections import Connections, make_connections, read_kdd99
from ._contacts import make_contacts

__all__ = [
    "Connections",
    "make_connections",
    "make_contacts",
    "read_conll",
    "read_kdd99",
    "write_conll",
]
