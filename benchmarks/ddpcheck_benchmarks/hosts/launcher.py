"""Start ranks on emulated hosts: the first `each` on host 0, the next on host 1, and so on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddpcheck.channel import Listener
from ddpcheck.launchers.base import Launched
from ddpcheck.launchers.processes import Processes

from .network import CONTROL_ADDRESS, INTERFACE, Network

_ENTER = """
host=$((RANK / LOCAL_WORLD_SIZE))
LOCAL_RANK=$((RANK % LOCAL_WORLD_SIZE)); export LOCAL_RANK
eval "network=\\$DDPCHECK_HOST_$host"
exec nsenter --net="$network" -- "$@"
"""


@dataclass(frozen=True)
class Hosts:
    """The launcher `processes`, on hosts of `each` ranks."""

    network: Network
    each: int = 1
    name: str = "hosts"

    def unavailable(self) -> str | None:
        return None

    def listener(self) -> Listener:
        """On a network that all hosts have: an abstract Unix socket is its own host's only."""
        return self.network.switch.inside(lambda: Listener(CONTROL_ADDRESS))

    def start(
        self,
        command: Sequence[str],
        world_size: int,
        variables: Mapping[str, str],
        *,
        inherit_output: bool = False,
    ) -> Launched:
        if world_size > self.each * len(self.network.hosts):
            raise OSError(f"{len(self.network.hosts)} hosts of {self.each} ranks have no room for {world_size}")
        places = {f"DDPCHECK_HOST_{number}": host.path for number, host in enumerate(self.network.hosts)}
        own = {
            **places,
            "LOCAL_WORLD_SIZE": str(min(self.each, world_size)),
            "MASTER_ADDR": self.network.address(0),
            "GLOO_SOCKET_IFNAME": INTERFACE,  # else Gloo takes the address that the host's name has
        }
        words = ["sh", "-c", _ENTER, "enter", *command]
        return Processes(own).start(words, world_size, variables, inherit_output=inherit_output)
