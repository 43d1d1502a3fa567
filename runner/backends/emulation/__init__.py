"""Low precision as a GPU computes it, emulated in the graph."""
