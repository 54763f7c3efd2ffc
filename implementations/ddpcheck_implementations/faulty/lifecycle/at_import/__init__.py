"""What faults of ranks that are forked or spawned make when it is imported, before there are ranks."""
