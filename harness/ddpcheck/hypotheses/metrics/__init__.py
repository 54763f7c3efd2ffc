"""Hypotheses about wrong metrics: their means, and their names."""
