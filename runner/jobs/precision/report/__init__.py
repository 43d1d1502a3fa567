"""The report of a precision search."""
