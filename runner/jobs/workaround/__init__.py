"""A run of `strategy=workaround`: what keeps a failure away, shown on the whole model, and what it costs."""
