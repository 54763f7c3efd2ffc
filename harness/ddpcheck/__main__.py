"""`python -m ddpcheck` is `ddpcheck`."""

import os
import signal
import sys

# python puts the working folder in front, where a click.py would stand in for the installed one
if sys.path[:1] in ([""], [os.getcwd()]):  # noqa: PTH109  # pathlib would be imported from there
    del sys.path[0]

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the command runs, Ctrl-C needs no traceback

from .cli import program

program()
