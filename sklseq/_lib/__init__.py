"""Tools for all other folders: threads, processor level, estimator base, versions, checksums.

Imports: nothing.
"""
