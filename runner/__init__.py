"""Making it happen: from a configuration to a verified answer."""

DISTRIBUTION = "winnow-onnx"
"""Whose this package is: other distributions may have one of the same name."""
