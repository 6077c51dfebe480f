"""Composing configs, and the rules of their keys."""
