"""Training for real: one program for every implementation, alone or under any launcher.

    python -m ddpcheck.training numpy_sockets --epochs 5
    mpirun -n 4 python -m ddpcheck.training numpy_mpi
    torchrun --nproc-per-node 2 -m ddpcheck.training torch_ddp --model resnet18 --data mnist --data-dir DIR

plan.py            model, data and hyperparameters: the same on all ranks
options.py         the plan as options of a command line, and back
datasets.py        the data, and the fixed split into training and test samples
initial_values.py  the initial values of a declared model
rank_messages.py   messages of ranks beside gradients: numbers, and that one of them has failed
loop.py            the training loop, over nothing but the facets of adapter.py
checkpoint.py      one file, written by rank 0, read by all
comparison.py      is the result the one that a single process would have got?
display.py         the output of rank 0
program.py         all of it in order, on one rank
"""
