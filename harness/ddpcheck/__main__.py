"""`python -m ddpcheck` is `ddpcheck`."""

import os
import sys

# python puts the working folder in front, where a click.py would stand in for the installed one
if sys.path[:1] in ([""], [os.getcwd()]):  # noqa: PTH109  # pathlib would be imported from there
    del sys.path[0]

from .cli import program

program()
