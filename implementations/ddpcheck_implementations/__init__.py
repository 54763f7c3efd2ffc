"""Implementations of data-parallel training: what ddpcheck judges, and learns from."""
