"""Interfaces of other packages, for programs that change one import.

Imports: _lib, deployment, estimators, features, runtime.
"""
