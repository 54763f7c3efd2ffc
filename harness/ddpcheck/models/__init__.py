"""A model, declared: what every framework's builder and the oracle can make."""
