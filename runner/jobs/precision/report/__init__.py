"""What is said of a mixed-precision model."""
