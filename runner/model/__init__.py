"""ONNX in, ONNX out: reading, indexing, cutting, storing; shapes and values. No inference of models here."""
