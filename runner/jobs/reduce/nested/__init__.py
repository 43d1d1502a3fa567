"""Reducing inside the nested graphs of an answer."""
