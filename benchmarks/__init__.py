"""Benchmarks: side by side in one run, costs counted in checks first and seconds second."""
