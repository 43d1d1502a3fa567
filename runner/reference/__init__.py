"""Good values: what every tensor should hold."""
