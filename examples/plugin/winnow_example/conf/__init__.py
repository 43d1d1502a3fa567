"""The YAML of the choices."""
