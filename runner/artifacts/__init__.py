"""What is kept of each iteration, and where."""
