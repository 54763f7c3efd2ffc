"""The fault engine: a fault is a row with a circumstance and an effect that then replaces the right behaviour.

Circumstances are named predicates that combine with & | ~. Effects are named functions. Each seam (collectives, gradients,
...) has a correct implementation that evaluates the circumstance at every call. A module registers its rows with one call
of `table`; faults with state or several methods are classes beside it.
"""
