"""Checks of collectives: values, groups, handles and memory, for any size, layout and history of calls."""
