"""Faults, and unusual ways, of collectives."""
