"""What replicas must do: gradients, parameters and buffers as on one process that has the whole batch."""
