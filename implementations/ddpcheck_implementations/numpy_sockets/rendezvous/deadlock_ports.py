"""Each rank opens a UDP port for deadlock detection (deadlock_detector.py) and sends the port number to all peers."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

import numpy as np

from ..connections.deadlock_detector import TOKEN_BYTES, DeadlockDetector, Place
from ..connections.peer import Peer
from .exchange import exchange

_PORT_BYTES = 8  # the message is a whole number of int64


def connect_detectors(
    detector: DeadlockDetector, here: str, peers: Mapping[int, Peer], addresses: Mapping[int, str]
) -> None:
    """Open a port at the address `here`, and exchange ports and tokens with all peers. `addresses` are the peers'."""
    token = os.urandom(TOKEN_BYTES)
    port = socket.socket(socket.AF_INET6 if ":" in here else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        port.bind((here, 0))
        message = np.frombuffer(token + port.getsockname()[1].to_bytes(_PORT_BYTES), np.int64)
        others: dict[int, Place] = {}
        for other, answer in exchange(peers, message, 2).items():
            received = answer.tobytes()
            others[other] = (addresses[other], int.from_bytes(received[TOKEN_BYTES:])), received[:TOKEN_BYTES]
    except BaseException:
        port.close()
        raise
    detector.open(port, token, others, peers)
