"""Hypotheses about a wrong gradient: wrong use of micro-batches, ranks, clips, auxiliary terms and sample weights."""
