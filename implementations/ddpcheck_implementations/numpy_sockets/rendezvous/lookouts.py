"""Each rank opens a port for questions (lookout.py), where it met the others, and tells them over their connections."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

import numpy as np

from ..connections.lookout import TOKEN_BYTES, Lookout, Place
from ..connections.peer import Peer
from .exchange import exchange

_PORT_BYTES = 8  # so that a card is whole numbers


def introduce(lookout: Lookout, here: str, peers: Mapping[int, Peer], addresses: Mapping[int, str]) -> None:
    """Tell every peer a port, opened at the address `here`, and its token. addresses: those of the peers."""
    token = os.urandom(TOKEN_BYTES)
    port = socket.socket(socket.AF_INET6 if ":" in here else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        port.bind((here, 0))
        card = np.frombuffer(token + port.getsockname()[1].to_bytes(_PORT_BYTES), np.int64)
        others: dict[int, Place] = {}
        for other, told in exchange(peers, card, 2).items():
            said = told.tobytes()
            others[other] = (addresses[other], int.from_bytes(said[TOKEN_BYTES:])), said[:TOKEN_BYTES]
    except BaseException:
        port.close()
        raise
    lookout.open(port, token, others, peers)
