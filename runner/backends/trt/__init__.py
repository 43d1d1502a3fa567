"""TensorRT 10, 11 and TensorRT for RTX behind one face. Imported in worker processes only."""
