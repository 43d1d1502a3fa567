"""Every verdict that was paid for."""
