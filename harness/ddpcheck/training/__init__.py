"""Training runs: one program for every implementation, alone or under any launcher.

    python -m ddpcheck.training numpy_sockets --epochs 5
    mpirun -n 4 python -m ddpcheck.training numpy_mpi
    torchrun --nproc-per-node 2 -m ddpcheck.training torch_ddp --model resnet18 --data mnist --data-dir DIR

plan.py            model, data and hyperparameters: the same on all ranks
options.py         the plan as options of a command line, and back
datasets.py        the data, and the fixed split into training and test samples
initial_values.py  the initial values of a declared model
rank_messages.py   messages between ranks beside gradients: numbers, and failures
loop.py            the training loop, which uses only the facets of adapter.py
checkpoint.py      one file, written by rank 0, read by all
comparison.py      compares the result with a single process's
display.py         the output of rank 0
shown_errors.py    errors of ranks, cut on the screen and whole in a file
program.py         the whole program of one rank
"""
