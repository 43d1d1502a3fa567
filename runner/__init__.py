"""Making it happen: from a configuration to a verified answer."""
