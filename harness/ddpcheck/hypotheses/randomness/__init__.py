"""Hypotheses about random numbers that are not those of their seed, epoch and rank."""
