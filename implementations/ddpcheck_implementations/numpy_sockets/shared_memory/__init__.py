"""Messages and reductions in memory that the ranks of one host share."""
