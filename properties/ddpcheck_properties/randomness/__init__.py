"""Checks of random numbers: they differ between ranks exactly where they should."""
