"""Which layers have to run in higher precision."""
