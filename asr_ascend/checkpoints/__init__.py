"""Checkpoint files: written and read safely, averaged, started from."""
