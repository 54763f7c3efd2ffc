"""Hypotheses about inconsistent indices of a sampler: shares, orders, and the rest after resuming."""
