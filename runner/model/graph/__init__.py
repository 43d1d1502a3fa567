"""Graphs: indexed, cut, edited, validated."""
