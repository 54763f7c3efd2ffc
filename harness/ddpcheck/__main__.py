"""`python -m ddpcheck` is `ddpcheck`."""

import os
import signal
import sys

# python puts the working folder first, where a click.py would hide the installed package
if sys.path[:1] in ([""], [os.getcwd()]):  # noqa: PTH109  # an import of pathlib could read that folder
    del sys.path[0]

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the command runs, Ctrl-C prints no traceback

from .cli import program

program()
