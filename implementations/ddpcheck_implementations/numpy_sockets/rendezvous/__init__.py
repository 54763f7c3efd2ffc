"""Rendezvous: from one address that all ranks know to a connection between every two of them."""
