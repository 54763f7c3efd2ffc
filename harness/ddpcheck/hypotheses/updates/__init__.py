"""Hypotheses about a wrong parameter, buffer or average: mistakes in its last update, or in the loading of a state."""
