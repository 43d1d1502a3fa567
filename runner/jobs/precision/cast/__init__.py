"""Models whose nodes run in two precisions."""
