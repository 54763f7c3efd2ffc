"""Records the events of a process that runs the script: one module for each source of events.

Each module has `install(run)`, which replaces functions of torch by functions that note each call and call the
original. In a mirror run, the same functions return the values of the real run's ranks.
"""
