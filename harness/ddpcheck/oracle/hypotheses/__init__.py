"""What an array would be if something specific had gone wrong: small functions from evidence to causes with their arrays."""
