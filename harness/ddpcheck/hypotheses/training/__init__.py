"""Hypotheses about a training run with another end: the run once more, with one rule changed, and the rule's cause."""
