"""A mirror run: one process is rank 0 of M identical ranks, each of which holds the batches of all ranks of the real
run.
"""
