"""Hypotheses about random numbers that do not belong to their seed, epoch and rank."""
