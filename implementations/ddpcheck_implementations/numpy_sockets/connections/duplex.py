"""One message out and one in at the same time, as MPI_Sendrecv."""

from __future__ import annotations

from ddpcheck.seeded_values import Array

from .peer import Peer, as_bytes, wait_for

FITS_BYTES = 32 * 1024
"""Bytes that a rank may send before it receives: the kernel's buffers hold them, even if both ranks send first."""
_SEND_BYTES = 256 * 1024


def send_receive(to: Peer, source: Peer, header: bytes, outgoing: Array, incoming: Array) -> None:
    """Send a contiguous array to one rank, and receive one from the same or another rank. Arrays may have any size."""
    if outgoing.nbytes <= FITS_BYTES:
        to.send(header, outgoing)
        source.receive(header, incoming)
        return
    to.start_stream(header)
    source.receive(header)
    out, into = as_bytes(outgoing), as_bytes(incoming)
    while out or into:
        sent = to.send_some(out[:_SEND_BYTES]) if out else 0
        received = source.receive_some(into) if into else 0
        out, into = out[sent:], into[received:]
        if not sent and not received:
            wait_for(source if into else None, to if out else None)
    to.end_stream(1)
