"""Read and write column files; generate labelled documents that need no download."""

from ._conll import read_conll, write_conll
from ._contacts import make_contacts

__all__ = ["make_contacts", "read_conll", "write_conll"]
