"""What is measured: collectives and training steps of any implementation, and the harness itself."""
