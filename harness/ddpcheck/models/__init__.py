"""Model declarations, which every framework's builder and the oracle can build."""
