"""Faults of collectives, and correct but unusual collectives."""
