"""Buffers of sockets and pipes become small, and unread bytes are reported for a hung rank."""

from __future__ import annotations

import fcntl
import os
import socket
from dataclasses import replace

from ddpcheck.execution.small_buffers import SMALL, restore_buffers, shrink_buffers, waiting_bytes
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.failed_ranks import Hang
from ddpcheck.hypotheses.ordered_hypotheses.ranks import OF_A_HANG
from ddpcheck.storage.codec import decode, encode
from ddpcheck.trace import RankTrace, Record, Trace, Unread, rank_from_plain, rank_to_plain


def test_buffers_become_small_and_get_their_size_back() -> None:
    here, there = socket.socketpair()
    read, write = os.pipe()
    with here, there:
        before = here.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF), fcntl.fcntl(write, fcntl.F_GETPIPE_SZ)
        try:
            shrink_buffers()
            assert here.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 2 * SMALL
            assert fcntl.fcntl(write, fcntl.F_GETPIPE_SZ) < before[1]
        finally:
            restore_buffers()
        assert (here.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF), fcntl.fcntl(write, fcntl.F_GETPIPE_SZ)) == before
        os.close(read)
        os.close(write)


def test_bytes_that_nobody_has_read_are_counted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as here:
        there, _ = listener.accept()
        with there:
            unsent, unread = waiting_bytes()
            here.sendall(b"12345")
            there.recv(1, socket.MSG_PEEK)
            assert waiting_bytes() >= (unsent, unread + 5)


def test_ranks_that_send_at_once_are_named() -> None:
    both = Unread(1000, 1000)
    stuck = _hung(0, both), _hung(1, both), _hung(2, Unread(0, 1000))
    (cause,) = first_cause(OF_A_HANG, Hang(Trace(stuck)))
    assert cause.id == "all-send-none-receives"
    assert dict(cause.parameters)["ranks"] == (0, 1)
    (cause,) = first_cause(OF_A_HANG, Hang(Trace(stuck[1:])))
    assert cause.id == "all-wait-in-one-operation"


def test_ranks_that_wait_for_their_sending_threads_may_have_read_in_part() -> None:
    in_join = [
        replace(_hung(rank, Unread(1000, 1000)), stack='  File "/lib/threading.py", line 9, in join') for rank in (0, 1)
    ]
    causes = first_cause(OF_A_HANG, Hang(Trace(tuple(in_join))))
    assert [cause.id for cause in causes] == ["short-read-taken-for-all", "all-send-none-receives"]
    causes = first_cause(OF_A_HANG, Hang(Trace((in_join[0], _hung(1, Unread(1000, 1000))))))
    assert [cause.id for cause in causes] == ["all-send-none-receives"]


def test_the_count_survives_a_file_and_older_files_have_none() -> None:
    rank = _hung(0, Unread(3, 4))
    assert rank_from_plain(decode(encode(rank_to_plain(rank)))) == rank
    assert rank_from_plain(rank_to_plain(rank)[:7]).unread is None
    slow = replace(rank, transferred=5)
    assert rank_from_plain(rank_to_plain(slow)) == slow
    assert rank_from_plain(rank_to_plain(slow)[:11]).transferred == 0


def _hung(rank: int, unread: Unread) -> RankTrace:
    return RankTrace(rank, "hung", (Record(0, "all_reduce", 0.0, None, {}),), unread=unread)
