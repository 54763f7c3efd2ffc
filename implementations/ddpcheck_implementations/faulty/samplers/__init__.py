"""Faults of samplers and random numbers, and correct but unusual samplers and random numbers."""
