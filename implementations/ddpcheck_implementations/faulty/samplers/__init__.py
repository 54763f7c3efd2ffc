"""Faults of samplers and random numbers, and correct but unusual ones."""
