"""Objects made at import: a forked rank inherits them; a spawned rank makes its own, before RANK is set.

Adapters name this module in `requires`, so the parent of the ranks imports it, and the driver does not.
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
    """A datagram socket with a name chosen by the system."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind("")
    return made


MAILBOX = mailbox()
POOL = ThreadPoolExecutor(1)
POOL.submit(int).result()  # start the thread, so that the first call is as fast as later ones
