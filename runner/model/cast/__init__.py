"""Mixed precision: which tensors can have another float type, and a model in which some nodes have it."""
