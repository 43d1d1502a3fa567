"""The whole model under variants of its target: optimizations off (`strategy=passes`), releases (`versions`)."""
