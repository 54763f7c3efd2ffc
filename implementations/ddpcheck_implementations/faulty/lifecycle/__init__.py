"""Faults of starting, failing, closing, and of what is left behind."""
