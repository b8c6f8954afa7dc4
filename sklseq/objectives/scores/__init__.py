"""The linear score map from weights and features to potentials, and its transpose."""
