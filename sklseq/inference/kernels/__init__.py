"""Compiled recursions on potentials, for chains and segmentations."""
