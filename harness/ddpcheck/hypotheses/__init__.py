"""Hypotheses: what could explain a wrong value. One subpackage or module for each family; see the docstrings there."""
