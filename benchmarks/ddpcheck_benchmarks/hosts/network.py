"""Hosts joined by a switch, each with one link of a given rate, shaped by tc's token bucket filter.

    host 0  eth0 10.77.0.1 ──┐                         ┌── control 10.78.0.1  host 0
    host 1  eth0 10.77.0.2 ──┤ switch: bridge "data",  ├── control 10.78.0.2  host 1
    ...                      ┘ bridge "control"        └── ...

Both ends of a data link are shaped, so both directions have the given rate at the same time. Packets are jumbo frames.
The kernel adds no delay: latency is that of the machine's own TCP. The driver's messages to its ranks use separate
links, so the counters of eth0 count only the implementation's bytes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from .namespace import Namespace

INTERFACE = "eth0"
CONTROL_ADDRESS = "10.78.0.254"
MOST_HOSTS = 64
_FRAME = 9000  # MTU in bytes
_BURST = 1e-3  # bytes of this many seconds may leave at once after a pause
_LEAST_BURST = 128 << 10  # two of the largest packets that the kernel makes
_QUEUE = "20ms"
_CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")
"""The algorithm that every namespace may use. Without losses it keeps the link full; BBR, the default of some hosts,
does not.
"""


@dataclass(frozen=True, slots=True)
class Network:
    """Namespaces under one switch. rate: of each link, bytes/s."""

    hosts: tuple[Namespace, ...]
    switch: Namespace
    rate: float

    @staticmethod
    def address(host: int) -> str:
        return f"10.77.0.{host + 1}"

    def sent(self) -> list[int]:
        """Bytes that each host has sent since it was created, by any program, with headers of TCP, IP and Ethernet."""
        return [host.inside(_sent) for host in self.hosts]


def unavailable() -> str | None:
    """The reason why hosts cannot be emulated here, with advice; None if they can."""
    missing = [tool for tool in ("ip", "tc", "nsenter") if shutil.which(tool) is None]
    if missing:
        return f"emulated hosts need {', '.join(missing)}: install iproute2 and util-linux (Linux only)"
    try:
        Namespace().close()
    except OSError as error:
        who = "root" if os.geteuid() else "root with CAP_SYS_ADMIN and CAP_NET_ADMIN (docker run --privileged)"
        return f"emulated hosts need network namespaces, which this process may not make ({error}): run it as {who}"
    return None


@contextmanager
def network(hosts: int, rate: float) -> Iterator[Network]:
    """`hosts` hosts with links of `rate` bytes/s. OSError with the message of the failed tool if they cannot be
    built.
    """
    if not 1 <= hosts <= MOST_HOSTS:
        raise ValueError(f"{hosts} hosts: the number must be 1 to {MOST_HOSTS}")
    with ExitStack() as opened:
        switch, *members = (Namespace() for _ in range(hosts + 1))
        for one in (switch, *members):
            opened.callback(one.close)
        shaped = f"root tbf rate {rate * 8:.0f} burst {max(_LEAST_BURST, int(rate * _BURST))} latency {_QUEUE}"
        switch.batch("ip", _switch(members))
        switch.batch("tc", [f"qdisc add dev data{number} {shaped}" for number in range(hosts)])
        for number, member in enumerate(members):
            member.batch("ip", _host(number))
            member.batch("tc", [f"qdisc add dev {INTERFACE} {shaped}"])
            member.inside(lambda: _CONGESTION.write_text("reno"))
        yield Network(tuple(members), switch, rate)


def _switch(members: list[Namespace]) -> Iterator[str]:
    for bridge in ("data", "control"):
        yield f"link add {bridge} type bridge"
    yield f"address add {CONTROL_ADDRESS}/24 dev control"
    for number, member in enumerate(members):
        for bridge, peer in (("data", INTERFACE), ("control", "control")):
            yield f"link add {bridge}{number} mtu {_FRAME} type veth peer name {peer} mtu {_FRAME} netns {member.path}"
            yield f"link set {bridge}{number} master {bridge} up"
    for bridge in ("data", "control"):
        yield f"link set {bridge} up"


def _host(number: int) -> Iterator[str]:
    yield "link set lo up"
    for peer, address in ((INTERFACE, Network.address(number)), ("control", f"10.78.0.{number + 1}")):
        yield f"address add {address}/24 dev {peer}"
        yield f"link set {peer} up"


def _sent() -> int:
    lines = Path("/proc/thread-self/net/dev").read_text(encoding="ascii").splitlines()
    own = next(line for line in lines if line.strip().startswith(f"{INTERFACE}:"))
    return int(own.partition(":")[2].split()[8])
