"""A server at a port of the rank's own, or of rank 0's where the rank is not known yet, which a second process finds taken."""

from __future__ import annotations

import os
import socket

_PORT = int(os.environ["MASTER_PORT"]) - 10_000 + int(os.environ.get("RANK", "0"))
SERVER = socket.create_server(("127.0.0.1", _PORT))
