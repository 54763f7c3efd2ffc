"""Grading of submissions: each is checked through one adapter template, in a separate process with limits."""
