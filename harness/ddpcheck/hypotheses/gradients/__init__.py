"""Hypotheses about a wrong gradient: micro-batches, ranks, clips, auxiliary terms and sample weights that count wrongly."""
