"""A converted model and its parent: which tensor is which."""
