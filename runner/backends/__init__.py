"""What runs models: ONNX Runtime and the reference evaluator of ONNX. Imported in worker processes only.

These modules also run under older interpreters and runtimes than the rest of the project: Python 3.8, onnxruntime 1.15,
onnx 1.13, numpy 1 or 2, and they import nothing of the project but each other.
"""
