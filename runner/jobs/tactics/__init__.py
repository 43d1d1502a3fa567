"""Which tactic breaks an engine."""
