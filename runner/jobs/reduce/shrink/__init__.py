"""A smaller answer of the same nodes: simpler values, smaller shapes, simpler nodes."""
