"""report.html: one self-contained page of a run or a sweep."""
