"""Interfaces of other packages, for programs that change one import.

Imports: _lib, data, deployment, estimators, features, runtime.
"""
