"""Negative log-likelihood of a linear chain: in memory, in blocks, in shards, dual."""
