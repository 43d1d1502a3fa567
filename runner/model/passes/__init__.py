"""Passes over a model."""
