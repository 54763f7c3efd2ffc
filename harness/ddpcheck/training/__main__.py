"""`python -m ddpcheck.training ADAPTER [options]`: the program of every rank."""

from .program import main

main()
