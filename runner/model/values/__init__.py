"""Values of tensors: types, files, random ones."""
