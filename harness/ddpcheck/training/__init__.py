"""Training for real: one program for every implementation, alone or under any launcher.

    python -m ddpcheck.training numpy_sockets --epochs 5
    mpirun -n 4 python -m ddpcheck.training numpy_mpi
    torchrun --nproc-per-node 2 -m ddpcheck.training torch_ddp --model resnet18 --data mnist --data-dir DIR

plan.py         what is trained, on what, and how: the same on all ranks
options.py      the plan as options of a command line, and back
datasets.py     the data, and the fixed split into training and test samples
weights.py      the initial values of a declared model
ranks.py        what ranks tell each other beside gradients: numbers, and that one of them is in trouble
loop.py         the training loop, over nothing but the facets of adapter.py
checkpoint.py   one file, written by rank 0, read by all
comparison.py   is the result the one that a single process would have got?
display.py      what rank 0 shows
program.py      all of it in order, on one rank
"""
