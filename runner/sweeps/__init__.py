"""Multirun: many jobs, one table."""
