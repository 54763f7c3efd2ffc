"""Faults of engines that are written in torch."""
