"""Checks of whole training runs: they end where one process ends, also after a checkpoint."""
