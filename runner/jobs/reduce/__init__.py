"""Reducing a model to the smallest part that still fails."""
