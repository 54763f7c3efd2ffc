"""Traffic: no more bytes and messages than needed."""
