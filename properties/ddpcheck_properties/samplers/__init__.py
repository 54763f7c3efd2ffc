"""What samplers must do: each sample to one rank, in an order that seed and epoch decide."""
