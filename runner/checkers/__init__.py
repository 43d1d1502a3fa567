"""How a candidate is judged: each checker turns a candidate into a verdict."""
