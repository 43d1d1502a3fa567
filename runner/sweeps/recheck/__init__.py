"""Kept results against what runs them now."""
