"""Segmentations: the best ones, sums, early decisions."""
