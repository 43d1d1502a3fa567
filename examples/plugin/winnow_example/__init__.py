"""One choice of each kind for Winnow, added from outside."""
