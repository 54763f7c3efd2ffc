"""Objects that a module makes at import: a forked rank inherits them, a spawned one makes its own, without a rank yet.

Its adapters name it in `requires`, so that the process which starts the ranks imports it, and the driver does not.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
from concurrent.futures import ThreadPoolExecutor

import numpy as np

RANK = int(os.environ.get("RANK", "0"))
PID = os.getpid()
NUMBER = int(np.random.randint(1 << 31))
IN_MAIN_PROCESS = multiprocessing.parent_process() is None


def mailbox() -> socket.socket:
    """A socket for datagrams, under a name that the system gives it."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind("")
    return made


MAILBOX = mailbox()
POOL = ThreadPoolExecutor(1)
POOL.submit(int).result()  # so that the first call is as fast as the others
