"""Hypotheses about a wrong result of a collective."""
