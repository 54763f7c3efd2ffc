"""What the recorder sees in a process that runs the script: one module for each source of events.

Each module has `install(run)`, which replaces functions of torch by ones that note what happened and do the same. In a mirror
run the same places put in what the ranks of the real run saw.
"""
