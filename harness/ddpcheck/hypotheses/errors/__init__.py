"""Hypotheses about a Job that ended early on some rank, from the operations of the Job."""
