"""How results are shown: pages made from result files, which are all that they read."""
