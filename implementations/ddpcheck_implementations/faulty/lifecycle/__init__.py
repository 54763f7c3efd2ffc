"""Faults of starting, failing, closing, and of resources left behind."""
