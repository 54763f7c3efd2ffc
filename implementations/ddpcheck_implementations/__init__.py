"""Implementations of data-parallel training: references, library adapters, and adapters that are wrong on purpose."""
