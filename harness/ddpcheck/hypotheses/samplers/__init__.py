"""Hypotheses about indices of a sampler that do not fit together: shares, orders, and what is left after resuming."""
