"""Reports: pages made from result files, and from nothing else."""
