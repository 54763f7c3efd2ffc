"""`python -m ddpcheck` is `ddpcheck`."""

from .cli import program

program()
