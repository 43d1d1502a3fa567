"""What a run is: the YAML files of this folder are the public interface."""

DISTRIBUTION = "winnow-onnx"
"""Whose this package is: other distributions may have one of the same name."""
