"""repro.py: one file that shows the failure of the reduced model beside it, on a machine without Winnow."""
