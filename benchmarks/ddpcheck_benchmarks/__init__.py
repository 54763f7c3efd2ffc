"""What is measured: the speed of the harness itself, and whether a long Session grows."""
