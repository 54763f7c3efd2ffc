"""Several emulated hosts with several ranks each; in fact all ranks share this machine's memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rank_arrays import REDUCED, of_rank, same_bits
from socket_ranks import on_ranks, outcomes_of

from ddpcheck.execution.sent_bytes import sent_by_connection
from ddpcheck.running.check_runner import run_checks
from ddpcheck.seeded_values import Array, key_of, numbers
from ddpcheck_implementations.numpy_sockets.communicator import Communicator
from ddpcheck_implementations.numpy_sockets.connections.peer import Peer
from ddpcheck_implementations.numpy_sockets.connections.wire_format import DTYPES, HEADER_BYTES
from ddpcheck_implementations.numpy_sockets.errors import CommunicationError, Mismatch, PeerLost
from ddpcheck_implementations.numpy_sockets.rendezvous import host_memory
from ddpcheck_implementations.numpy_sockets.shared_memory.mapping import map_region

HIERARCHICAL = {"algorithm": "hierarchical"}
LARGE = 300_003
"""Elements: several blocks of memory, and no divisor in common with block sizes."""


@pytest.mark.parametrize(("world_size", "hosts"), [(3, "1,2"), (4, "2"), (6, "4,2")])
@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_any_size_are_reduced_on_hosts_of_any_size(world_size: int, hosts: str, dtype: str) -> None:
    ops = [op for op in REDUCED if op != "mean" or dtype.startswith("float")]
    cases = [(size, op) for size in (*range(world_size), LARGE) for op in (ops if size < LARGE else ["sum"])]

    def program(comm: Communicator) -> list[Array]:
        made = [comm.all_reduce(of_rank(comm.rank, (size,), dtype), op) for size, op in cases]
        for array in (of_rank(comm.rank, (LARGE,), dtype), comm.empty((LARGE,), dtype)):
            array[:] = of_rank(comm.rank, (LARGE,), dtype)
            comm.all_reduce_in_place(array, "max")
            made.append(array)
        return made

    results = on_ranks(world_size, program, hosts=hosts, **HIERARCHICAL)
    for place, (size, op) in enumerate([*cases, (LARGE, "max"), (LARGE, "max")]):
        wanted = REDUCED[op]([of_rank(rank, (size,), dtype) for rank in range(world_size)])
        assert same_bits([*(result[place] for result in results), np.asarray(wanted).astype(dtype)]), (size, op)


@pytest.mark.parametrize(("world_size", "hosts"), [(3, "2,1"), (5, "1,3,1"), (6, "4,2"), (6, "3")])
def test_real_numbers_have_the_same_bits_on_all_ranks_and_each_time(world_size: int, hosts: str) -> None:
    own = [numbers((LARGE,), "float32", "real", key_of(0, rank)) for rank in range(world_size)]
    results = on_ranks(world_size, lambda comm: [comm.all_reduce(own[comm.rank]) for _ in range(2)], hosts=hosts)
    assert same_bits([array for result in results for array in result])
    np.testing.assert_allclose(results[0][0], np.sum(own, axis=0, dtype=np.float64), atol=1e-5)


@pytest.mark.parametrize("group", [(0, 1), (1, 2), (0, 2, 3), (1, 2, 3, 4)])
def test_groups_take_what_they_have_of_each_host(group: tuple[int, ...]) -> None:
    """Hosts of 2, 1 and 2 ranks."""

    def program(comm: Communicator) -> Array | None:
        return comm.all_reduce(of_rank(comm.rank, (LARGE,)), group=group) if comm.rank in group else None

    results = on_ranks(5, program, hosts="2,1", **HIERARCHICAL)
    wanted = np.add.reduce([of_rank(rank, (LARGE,)) for rank in group])
    assert same_bits([*(results[rank] for rank in group), wanted])


@pytest.mark.parametrize(("hosts", "others"), [("", False), ("1", False), ("2", True), ("3,1", True)])
def test_ranks_send_for_others_if_a_host_of_several_has_two(hosts: str, others: bool) -> None:
    assert on_ranks(4, lambda comm: comm.sends_for_others, hosts=hosts) == [others] * 4


@pytest.mark.parametrize("hosts", ["1", "2"])
def test_ranks_that_send_for_others_withdraw_the_promise_of_least_traffic(
    hosts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a group with two ranks of one host and one of another, the latter sends twice as much as a ring would."""
    monkeypatch.setenv("NUMPY_SOCKETS_HOSTS", hosts)
    *_, verdict = run_checks("numpy_sockets", (4,), ("check_large_collectives_send_no_excess_bytes",))
    withdrawn = verdict.reason.endswith("ranks send for others of their host")
    assert (verdict.status, withdrawn) == (("skipped", True) if hosts == "2" else ("passed", False))


@pytest.mark.parametrize(
    ("algorithm", "elements", "share"),
    [("hierarchical", 60_000, 2 / 2), ("", 60_000, 2 / 2), ("ring", 60_000, 2 * 3 / 4), ("", 60, 2)],
)
def test_host_sends_only_the_minimum_for_two_hosts(algorithm: str, elements: int, share: float) -> None:
    """Small arrays do not use it, nor ranks that are told to use sockets only."""
    own = np.ones(elements, np.float32)

    def program(comm: Communicator) -> int:
        away = [peer for rank, peer in comm._peers.items() if rank // 2 != comm.rank // 2]
        before = sum(map(sent, away))
        comm.all_reduce(own)
        return sum(map(sent, away)) - before

    zero, one, *_ = on_ranks(4, program, hosts="2", algorithm=algorithm)
    assert share * own.nbytes <= zero + one <= share * own.nbytes + 4 * HEADER_BYTES


def sent(peer: Peer) -> int:
    """Bytes on this connection, by the kernel's count."""
    return sent_by_connection()[str(Path(f"/proc/self/fd/{peer.fileno()}").readlink())][0]


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_rank_that_is_gone_is_named_by_those_of_its_host_and_of_others(lost: int) -> None:
    def program(comm: Communicator) -> None:
        comm.barrier()
        if comm.rank != lost:
            comm.all_reduce(np.ones(LARGE))

    for rank, outcome in enumerate(outcomes_of(3, program, hosts="1,2")):
        if rank != lost:
            assert isinstance(outcome, PeerLost)
            assert f"rank {lost}" in str(outcome) + "".join(getattr(outcome, "__notes__", [])), outcome


@pytest.mark.parametrize("odd", [0, 1, 3])
def test_disagreeing_ranks_are_reported_anywhere(odd: int) -> None:
    outcomes = outcomes_of(4, lambda comm: comm.all_reduce(np.ones(LARGE + (comm.rank == odd))), hosts="2")
    assert all(isinstance(outcome, CommunicationError) for outcome in outcomes), outcomes
    told = [str(outcome) for outcome in outcomes if isinstance(outcome, Mismatch)]
    assert any(f"{LARGE} x float64" in words and f"{LARGE + 1} x float64" in words for words in told), outcomes


def test_a_host_whose_memory_is_out_of_reach_counts_as_one_for_each_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """All ranks must know this, including those of other hosts; otherwise they would wait for different ranks."""
    calls = itertools.count()

    def once_refused(process: int, descriptor: int, size: int) -> memoryview:
        if next(calls) == 0:
            raise OSError("not permitted")
        return map_region(process, descriptor, size)

    monkeypatch.setattr(host_memory, "map_region", once_refused)
    results = on_ranks(4, lambda comm: comm.all_reduce(of_rank(comm.rank, (LARGE,))), hosts="2", **HIERARCHICAL)
    assert same_bits([*results, np.add.reduce([of_rank(rank, (LARGE,)) for rank in range(4)])])


@pytest.mark.parametrize("hosts", ["0", "2,", "two"])
def test_hosts_of_no_size_are_refused(hosts: str) -> None:
    with pytest.raises(ValueError, match=r"hosts of .* ranks: say how many each has, as 2 or 4,2"):
        on_ranks(2, lambda comm: comm.rank, hosts=hosts)


def by_hosts(comm: Communicator, odd: Callable[[Communicator], object]) -> None:
    """One all-reduce that fits, and one in which rank 6, alone on its host, makes another call."""
    comm.all_reduce(np.ones(3))
    if comm.rank == 6:
        odd(comm)
    else:
        comm.all_reduce(np.ones(140))
    comm.all_reduce(np.ones(3))


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        # rank 6 waits for 5, which waits in memory for 4, and 4 waits for 6: no rank would read messages to 0
        (lambda comm: comm.barrier(), "barrier"),
        # 4 learns of its next call only; 0, 1 and 3 know this one, but would not report it
        (lambda comm: comm.broadcast(np.ones(140), 6), "broadcast(root 6)"),
    ],
)
def test_mismatch_is_explained_whichever_rank_waits(odd: Callable[[Communicator], object], words: str) -> None:
    outcomes = outcomes_of(7, lambda comm: by_hosts(comm, odd), hosts="2", **HIERARCHICAL)
    assert all(isinstance(outcome, CommunicationError) for outcome in outcomes), outcomes
    told = [str(outcome) for outcome in outcomes if isinstance(outcome, Mismatch)]
    assert any(words in message and "all_reduce(sum) of 140" in message for message in told), outcomes
