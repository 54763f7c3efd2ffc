"""Faults, and unusual ways, of samplers and random numbers."""
