"""Scripts that train with NumPy over mpi4py: recorder, mirror and comparison.

A script marks its batches: `batch = ddpcheck.audit.batch(batch)`. The time from one mark to the next is a micro-batch.
At each mark the float arrays in the script's variables are read. Arrays that change and that match buffers of the
collectives form the replica: parameters and the optimizer's state. Their changes in a step are compared with the
mirrors. No module here needs torch.
"""
