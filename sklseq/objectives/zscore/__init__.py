"""Moments of scores over all labelings, and the linear systems of z-score training."""
