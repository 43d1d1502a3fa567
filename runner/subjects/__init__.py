"""What a trial means in files: the nodes kept of a graph, the number of an iteration."""
