"""Winnow and `polygraphy debug reduce` on the same models, checks and culprits, in the same run."""
