"""Estimators: each validates its data, builds an objective, calls a solver and sets attributes.

Imports: _lib, data, features, inference, metrics, objectives, solvers.
"""
