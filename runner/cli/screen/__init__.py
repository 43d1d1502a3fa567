"""What a person sees of runs: the last screen of one, and the list of those that are there."""
