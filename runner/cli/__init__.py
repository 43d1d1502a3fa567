"""The entry floor: command line in, settings out, exit code back."""
