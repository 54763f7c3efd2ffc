"""Algorithms of collectives, over sockets and between hosts, and the choice among them."""
