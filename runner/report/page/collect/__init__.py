"""Makes the values of a page out of what a run, or a sweep, left and knows."""
