"""`python -m ddpcheck` is `ddpcheck`."""

import os
import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """The command line, whose modules are imported here: for the moment that this takes, Ctrl-C needs no traceback."""
    # python -m puts the working folder in front, where a click.py would stand in for the installed one
    if sys.path[:1] in ([""], [os.getcwd()]):  # noqa: PTH109  # pathlib would be imported from there
        del sys.path[0]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .cli import program

    program()


if __name__ == "__main__":
    main()
