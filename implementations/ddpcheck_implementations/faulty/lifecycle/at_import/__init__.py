"""Modules that make objects at import, before there are ranks."""
