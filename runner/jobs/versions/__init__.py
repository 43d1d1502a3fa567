"""A run of `strategy=versions`: in which releases of a package the failure is there."""
