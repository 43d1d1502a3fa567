"""A run of `strategy=passes`: which optimizations, or other switches, a failure needs, and which heal it."""
