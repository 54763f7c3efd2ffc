"""Faults, and unusual ways, of whole training runs."""
