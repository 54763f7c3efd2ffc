"""Checks of replicas: gradients, parameters and buffers as in one process with the whole batch."""
