"""Faults of whole training runs, and correct but unusual runs."""
