"""Faults, and unusual ways, of replicas."""
