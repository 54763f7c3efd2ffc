"""Model declarations, from which every framework's builder and the oracle build the same model."""
