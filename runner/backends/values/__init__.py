"""Values in files, without protobuf."""
