"""Hypotheses about a wrong parameter, buffer or average: mistakes in its last update, or in loading a state."""
