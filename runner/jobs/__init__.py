"""What a run can be: a folder each, and what all of them share."""
