"""Benchmarks of collectives and training steps of any implementation, and of the harness itself."""
