"""Winnow's own Hydra launcher: a process for each job of a sweep, so that the death of one costs that one only."""
