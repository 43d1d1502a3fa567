"""Blocks of a network: layers that belong together."""
