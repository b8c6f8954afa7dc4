"""Data: sequences, labels, segments, rows in blocks, files.

Imports: _lib.
"""
