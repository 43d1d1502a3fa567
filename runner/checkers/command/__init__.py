"""A command of the user judges."""
