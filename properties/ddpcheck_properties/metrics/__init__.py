"""What aggregated metrics and scores must be: those of all samples."""
