"""Causes of replicas that differ from one process in special runs: batch norm, join(), averages, skipped steps, large tensors."""
