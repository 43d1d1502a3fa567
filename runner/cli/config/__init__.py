"""From what a user typed or wrote to a composed configuration."""
