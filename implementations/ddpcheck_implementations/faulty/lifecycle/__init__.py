"""Faults of starting, failing and closing, and of resources left behind."""
