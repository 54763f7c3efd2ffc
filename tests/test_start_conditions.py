"""Starts of ranks under conditions: which ranks enter connect() one after the other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ddpcheck.job import Start
from ddpcheck.ranks import start_conditions
from ddpcheck.ranks.foreign_clients import ForeignClients
from ddpcheck.ranks.start_conditions import StartConditions

LOOKS = -1


@pytest.mark.parametrize(
    ("start", "in_turn"),
    [
        (Start(), False),
        (Start((0, 1)), True),
        (Start(short_reads=True), True),
        (Start(taken_ports=True), True),
    ],
)
def test_ranks_enter_in_turn_if_an_order_or_their_sockets_are_disturbed(
    start: Start, in_turn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In turn, the driver looks at a rank until it waits, and then lets in the next one."""
    events: list[int] = []

    def state(pid: int) -> str:
        events.append(LOOKS)
        return "S"

    def link(rank: int) -> Any:
        jobs = SimpleNamespace(send=lambda _: events.append(rank))
        return SimpleNamespace(rank=rank, pid=100 + rank, host="here", jobs=jobs)

    monkeypatch.setattr(start_conditions, "state", state)
    StartConditions(start, cast(ForeignClients, None)).let_in([link(0), link(1)], "here")
    assert [rank for rank in events if rank != LOOKS] == [0, 1]
    assert (events[1] == LOOKS) == in_turn
