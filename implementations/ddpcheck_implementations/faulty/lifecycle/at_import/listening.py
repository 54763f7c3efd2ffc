"""A server that listens from import on, at the rank's port, or at rank 0's if RANK is not set yet."""

from __future__ import annotations

import os
import socket

_PORT = int(os.environ["MASTER_PORT"]) - 10_000 + int(os.environ.get("RANK", "0"))
SERVER = socket.create_server(("127.0.0.1", _PORT))
