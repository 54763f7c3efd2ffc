"""Simulates all-reduces, message by message, on a described cluster with SimGrid, to compare with the formulas."""
