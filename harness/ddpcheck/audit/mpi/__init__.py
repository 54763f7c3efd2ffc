"""Scripts that train with NumPy over mpi4py: recorder, mirror and comparison.

A script marks its batches: `batch = ddpcheck.audit.batch(batch)`. From one mark to the next is a micro-batch. At each mark the
float arrays that the script's variables hold are looked at; those that change and that fit what enters or leaves the
collectives are the replica: parameters and the optimizer's state. What they change by in a step is compared with the mirrors.
Nothing here needs torch.
"""
