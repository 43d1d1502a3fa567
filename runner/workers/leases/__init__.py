"""Who may use which GPU, and when."""
