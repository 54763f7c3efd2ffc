"""Faults, and unusual ways, of metrics and scores."""
