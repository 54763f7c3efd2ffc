"""Faults of metrics and scores, and correct but unusual metrics and scores."""
