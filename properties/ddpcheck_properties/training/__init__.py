"""What whole training runs must do: end where one process ends, after a checkpoint too."""
