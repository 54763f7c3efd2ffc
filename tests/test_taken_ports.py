"""A port that was only looked up is taken by another socket; a port in use by connections stays free of others."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from ddpcheck.execution.taken_ports import give_ports_back, ports_taken, take_released_ports


@pytest.fixture(autouse=True)
def _taking() -> Iterator[None]:
    take_released_ports()
    yield
    give_ports_back()


def test_a_released_port_is_taken_until_it_is_given_back() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    assert ports_taken() == 1
    with pytest.raises(OSError, match="in use"):
        socket.create_server(("127.0.0.1", port))
    give_ports_back()
    socket.create_server(("127.0.0.1", port)).close()


def test_a_port_that_was_asked_for_by_number_is_left_alone() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = int(listener.getsockname()[1])
    give_ports_back()
    listener.close()
    take_released_ports()
    socket.create_server(("127.0.0.1", port)).close()
    assert ports_taken() == 0
