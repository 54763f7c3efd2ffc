"""Checks of samplers: each sample goes to one rank, in an order that depends on seed and epoch."""
