"""Whether a check can be trusted: what is repeated, and what that costs and shows."""
