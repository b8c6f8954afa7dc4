"""Objectives over segmentations: likelihood and hinge loss."""
