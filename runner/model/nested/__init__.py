"""Nested graphs: bodies of If, Loop, Scan and functions."""
