"""A ready-made adapter for torch, and its parts."""
