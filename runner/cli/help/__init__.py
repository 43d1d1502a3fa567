"""What `--help` prints: a page for people, and what is asked about by name."""
