"""``Shards``: training, prediction and score on data in pieces, here or on a cluster."""
