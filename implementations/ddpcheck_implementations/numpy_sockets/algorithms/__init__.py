"""Algorithms that move a group's bytes over connections, and the choice among them."""
