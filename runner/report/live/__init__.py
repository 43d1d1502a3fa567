"""What is seen of a run while it goes: lines of its log, on a terminal a panel, and how much is still to come."""
