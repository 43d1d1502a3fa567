"""The same check again and again."""
