"""Typical torch wrappers written by hand, right and wrong."""
