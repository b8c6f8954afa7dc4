"""Longer versions of tests, run before a release: ``make trials``."""
