"""Connections between ranks: whole messages, both ways, with errors that name the peer."""
