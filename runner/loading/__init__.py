"""From a path to a loaded model."""
