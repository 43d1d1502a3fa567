"""What to try next: pure decisions over trials. No ONNX, no files, no clock; nothing of `runner` is imported here."""
