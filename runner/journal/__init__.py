"""The journal: the verdicts of checks on disk, for resuming, reusing and sharing them."""
