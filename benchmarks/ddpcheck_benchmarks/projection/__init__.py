"""Projection of times to a larger cluster: a cost model, fitted and validated, and a simulation that checks it."""
