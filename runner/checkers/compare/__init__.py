"""Outputs are compared with what they should be."""
