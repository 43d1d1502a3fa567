"""Golden runs: what a user sees of Winnow, written down, so that the code behind it can be rebuilt."""
