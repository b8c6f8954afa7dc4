"""What X and y are: sequences, labels, segments, rows in blocks, files.

Imports: _lib.
"""
