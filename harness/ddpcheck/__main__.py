"""`python -m ddpcheck` is `ddpcheck`."""

from .cli import main

main(prog_name="ddpcheck")
