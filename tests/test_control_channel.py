"""The control channel of driver and ranks: clients without the secret are refused, and delay no rank."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ddpcheck import Job, Session
from ddpcheck.job import AllReduce, TensorSpec
from ddpcheck.launchers.attached import Attached
from ddpcheck.launchers.launcher import Launched
from ddpcheck.launchers.processes import Processes
from ddpcheck.ranks import authentication, channel
from ddpcheck.ranks.channel import Channel, ChannelClosed, Listener, connect
from ddpcheck.storage import codec

SUM = Job(2, (AllReduce(TensorSpec((3,)), "sum"),))
WITHIN = 30.0


@pytest.fixture(params=["unix", "tcp"])
def listener(request: pytest.FixtureRequest) -> Iterator[Listener]:
    with closing(Listener("127.0.0.1" if request.param == "tcp" else None)) as made:
        yield made


def knock(listener: Listener, words: bytes = b"") -> socket.socket:
    """Connect as a foreign client."""
    scheme, _, rest = listener.address.partition(":")
    if scheme == "unix":
        connection = socket.socket(socket.AF_UNIX)
        connection.connect("\0" + rest)
    else:
        host, _, port = rest.rpartition(":")
        connection = socket.create_connection((host, int(port)), WITHIN)
    connection.settimeout(WITHIN)
    connection.sendall(words)
    return connection


def attach(listener: Listener, greeting: bytes = b"me") -> Channel:
    """Connect as a rank, while foreign clients are refused."""
    with ThreadPoolExecutor() as pool:
        rank = pool.submit(connect, listener.address, listener.secret, greeting, WITHIN)
        while (found := listener.accept(WITHIN)) is None:
            pass
        rank.result(WITHIN).close()
    assert found.greeting == greeting
    return found


def unproven(greeting: bytes) -> bytes:
    """The answer of a client that does not know the secret."""
    return (
        authentication.ANSWER.pack(bytes(authentication.PROOF), bytes(authentication.NONCE), len(greeting)) + greeting
    )


def test_silent_clients_do_not_delay_a_rank(listener: Listener) -> None:
    with ExitStack() as open_:
        for _ in range(30):
            open_.enter_context(knock(listener))
        with ThreadPoolExecutor() as pool:
            rank = pool.submit(connect, listener.address, listener.secret, b"me", WITHIN)
            found = listener.accept(WITHIN)  # at the first attempt: no client was waited for
            assert found is not None
            assert found.greeting == b"me"
            rank.result(WITHIN).close()
        found.close()


def test_excess_stranger_replaces_the_oldest(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "_MOST", 3)
    with ExitStack() as open_:
        strangers = [open_.enter_context(knock(listener)) for _ in range(5)]
        attach(listener).close()
        for early in strangers[:2]:
            assert len(early.recv(1000)) == authentication.NONCE
            assert early.recv(1000) == b""


def test_a_rank_on_the_drivers_host_waits_until_all_ranks_are_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_TCP_SECONDS", 0.05)
    with closing(Listener()) as busy, closing(Listener("127.0.0.1")) as silent, ThreadPoolExecutor() as pool:
        rank = pool.submit(connect, busy.address, busy.secret)
        select.select([busy], [], [], WITHIN)  # the rank has connected
        with pytest.raises(TimeoutError):
            connect(silent.address, silent.secret)
        while (found := busy.accept(WITHIN)) is None:
            pass
        rank.result(WITHIN).close()
        found.close()


def test_silent_connections_time_out(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "_SECONDS", 0.01)
    with knock(listener) as stranger:
        assert listener.accept(WITHIN) is None
        assert len(stranger.recv(1000)) == authentication.NONCE
        assert stranger.recv(1000) == b""


@pytest.mark.parametrize(
    "words", [b"\x00" * 64 + struct.pack("!I", 1 << 31), b"\xff" * 200, b"GET / HTTP/1.1\r\n\r\n" * 9]
)
def test_a_wrong_answer_ends_that_connection_only(
    listener: Listener, words: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "_SECONDS", 2 * WITHIN)  # it ends at once
    with knock(listener, words):
        assert listener.accept(WITHIN) is None
        attach(listener).close()


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=200), max_size=5))
@example([struct.pack("!32s32sI", b"", b"", 1 << 16), b"\xff" * 10])
@example([b"\xff" * 200, unproven(b""), unproven(b"x")])
def test_messages_of_strangers_do_not_affect_a_rank(said: list[bytes]) -> None:
    with closing(Listener()) as listener, ExitStack() as open_:
        for words in said:
            open_.enter_context(knock(listener, words))
        attach(listener).close()


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=40), max_size=4), st.binary(max_size=100))
def test_frames_survive_any_fragmentation(frames: list[bytes], rest: bytes) -> None:
    here, there = socket.socketpair()
    with closing(Channel(here)) as channel, there:
        there.sendall(b"".join(struct.pack("!Q", len(frame)) + frame for frame in frames) + rest)
        there.shutdown(socket.SHUT_WR)
        assert [channel.receive() for _ in frames] == frames
        with pytest.raises(ChannelClosed):  # invalid frames, or frames of limited length
            list(iter(channel.receive, None))


def test_replayed_answer_is_rejected(listener: Listener) -> None:
    """A rank's recorded answer to a driver with the same secret, unchanged, and with the greeting of another rank."""
    nonce, own = b"n" * authentication.NONCE, b"o" * authentication.NONCE
    said = authentication.proof(listener.secret, b"rank", nonce, own, b"rank 1")
    for greeting in (b"rank 1", b"rank 0"):
        with knock(listener, authentication.ANSWER.pack(said, own, len(greeting)) + greeting) as stranger:
            assert listener.accept(WITHIN) is None
            assert stranger.recv(authentication.NONCE) != nonce
            assert stranger.recv(authentication.PROOF) == authentication.REFUSED


def test_a_greeting_that_was_changed_on_its_way_is_rejected(listener: Listener) -> None:
    with knock(listener) as between:
        while not select.select([between], [], [], 0.0)[0]:
            with suppress(TimeoutError):
                assert listener.accept(0.01) is None  # sends the nonce
        nonce, own = between.recv(authentication.NONCE), b"o" * authentication.NONCE
        said = authentication.proof(listener.secret, b"rank", nonce, own, b"rank 1")
        between.sendall(authentication.ANSWER.pack(said, own, 6) + b"rank 0")
        assert listener.accept(WITHIN) is None
        assert between.recv(authentication.PROOF) == authentication.REFUSED


def test_driver_without_the_secret_is_rejected(listener: Listener) -> None:
    with ThreadPoolExecutor() as pool:
        rank = pool.submit(connect, listener.address, "another", b"", WITHIN)
        assert listener.accept(WITHIN) is None
        with pytest.raises(ConnectionError, match="does not accept this secret"):
            rank.result(WITHIN)


_KNOCKS = """
import os, socket, sys
os.setuid(65534)
connection = socket.socket(socket.AF_UNIX)
connection.connect("\\0" + sys.argv[1])
print(len(connection.recv(100)))
"""


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can become another user")
def test_other_users_do_not_receive_the_nonce() -> None:
    with closing(Listener()) as listener:
        name = listener.address.partition(":")[2]
        stranger = subprocess.Popen([sys.executable, "-S", "-c", _KNOCKS, name], stdout=subprocess.PIPE)
        assert listener.accept(WITHIN) is None
        assert stranger.communicate(timeout=WITHIN)[0] == b"0\n"


def test_session_starts_while_strangers_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Listener] = []

    def observed(*arguments: object) -> Listener:
        made.append(Listener())
        return made[-1]

    monkeypatch.setattr("ddpcheck.ranks.world.Listener", observed)
    with ExitStack() as open_, ThreadPoolExecutor() as pool:
        started = Processes.start

        def start(launcher: Processes, *arguments: object, **options: object) -> Launched:
            hello = {"purpose": "jobs", "rank": 1, "world_size": 2, "engine": "", "pid": 1, "host": "", "files": []}
            for words in (b"", b"\xff" * 200, b"\0" * 64 + b"\xff" * 4, unproven(codec.encode(hello))):
                open_.enter_context(knock(made[-1], words))
            for greeting in (b"", b"\xff\xff\xff\xff", b"x" * 1000, codec.encode({"rank": 1}), codec.encode([1, 2])):
                pool.submit(lambda said: connect(made[-1].address, made[-1].secret, said, WITHIN).close(), greeting)
            return started(launcher, *arguments, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(Processes, "start", start)
        with Session("numpy_sockets", 2) as session:
            assert session.run(SUM).completed


def test_the_line_to_paste_names_a_file_and_not_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DDPCHECK_SECRET", raising=False)
    told: list[str] = []
    launcher = Attached("127.0.0.1", announce=told.append)
    with closing(launcher.listener()) as listener:
        variables = {"DDPCHECK_CONTROL": listener.address, "DDPCHECK_SECRET": listener.secret}
        launched = launcher.start(["python", "-m", "ddpcheck.worker", "mine"], 2, variables)
        words = dict(word.split("=", 1) for word in told[0].split() if "=" in word)
        file = Path(words["DDPCHECK_SECRET_FILE"])
        assert listener.secret not in told[0]
        assert file.read_text() == listener.secret
        assert file.stat().st_mode & 0o777 == 0o600
        launched.kill()
        assert not file.exists()


@pytest.mark.parametrize("size", [0, 1, 1 << 14, (1 << 14) + 1, 1 << 20])
def test_frames_of_any_size_arrive_whole_and_in_order(size: int) -> None:
    one, other = socket.socketpair()
    frames = [os.urandom(size), b"short", os.urandom(size)]
    with closing(Channel(one)) as rank, closing(Channel(other)) as driver, ThreadPoolExecutor() as pool:
        sent = pool.submit(lambda: deque(map(rank.send, frames)))
        assert [bytes(driver.receive()) for _ in frames] == frames
        sent.result(WITHIN)


def test_a_frame_whose_sender_is_gone_is_the_end_of_the_stream() -> None:
    one, other = socket.socketpair()
    with closing(Channel(other)) as driver:
        with closing(one):
            one.sendall(struct.pack("!Q", 1 << 20) + b"the first words")
        with pytest.raises(ChannelClosed):
            driver.receive()
