"""The sections of REPORT.md that a kind of run adds."""
