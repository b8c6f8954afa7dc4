"""Linear chains: best paths, sums, expectations, decisions online."""
