"""Hypotheses about a training run with a wrong end: the run is emulated with one rule changed, and the rule gives the
cause.
"""
