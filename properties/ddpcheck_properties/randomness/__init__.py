"""What random numbers must do: differ between ranks where they should, and only there."""
