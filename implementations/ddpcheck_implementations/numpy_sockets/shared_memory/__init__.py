"""Ranks of one host: messages and sums in memory that they share."""
