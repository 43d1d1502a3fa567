"""What to try next: pure decisions over trials. No ONNX, no files, no clock; nothing of `runner` is imported here."""

DISTRIBUTION = "winnow-onnx"
"""Whose this package is: other distributions may have one of the same name."""
