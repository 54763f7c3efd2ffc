"""Faults of replicas, and correct but unusual replicas."""
