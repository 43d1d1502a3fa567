"""A run of `strategy=inspect`: what a model or an engine is made of, and what could trouble a run of it."""
