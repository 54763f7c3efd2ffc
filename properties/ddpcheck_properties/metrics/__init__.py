"""Checks of aggregated metrics and scores: they are those of all samples."""
