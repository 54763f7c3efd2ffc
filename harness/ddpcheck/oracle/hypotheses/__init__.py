"""Hypotheses about a wrong array: small functions from evidence to causes, each with the array that it would give."""
