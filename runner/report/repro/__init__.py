"""repro.py: one file that shows the failure of the reduced model, alone or beside it, on a machine without Winnow."""
