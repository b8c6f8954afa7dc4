"""Sources of training data: memory, blocks of rows, ``Shards`` and Dask clusters."""
