"""One question, put to one checker: asked, tested, checked again."""
