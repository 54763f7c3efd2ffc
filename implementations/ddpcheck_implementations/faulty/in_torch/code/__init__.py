"""The torch code of the faults in the tables beside: wrappers, hooks and optimizers, imported in the ranks only."""
