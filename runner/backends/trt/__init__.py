"""TensorRT 10, 11 and TensorRT for RTX behind one interface. Imported in worker processes only."""
