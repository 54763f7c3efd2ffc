"""`python -m ddpcheck.training ADAPTER [options]`: what runs on every rank."""

from .program import main

main()
