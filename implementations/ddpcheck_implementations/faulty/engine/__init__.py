"""The fault engine: a fault is a row that says in which circumstance an effect replaces the right behaviour.

`circumstances` are named predicates that combine with & | ~, `effects` are named functions, and `fault` makes an adapter of a
row. Each seam (collectives, gradients, ...) has a correct implementation that asks the circumstance at every call. The table
of a module is one call of `table`; faults with state or several methods are classes beside it.
"""
