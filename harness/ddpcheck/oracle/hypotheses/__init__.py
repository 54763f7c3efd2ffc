"""What an array would be if something specific had gone wrong: each a small function from evidence to causes with their arrays."""
