"""Isolation: whatever may crash, hang or eat memory runs in a process of its own, and its end is an answer."""
