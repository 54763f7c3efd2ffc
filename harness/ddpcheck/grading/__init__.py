"""Grading of submissions: each is checked through one template of an adapter, in a process of its own, with limits."""
