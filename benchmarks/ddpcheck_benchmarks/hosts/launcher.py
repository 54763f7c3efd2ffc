"""Starts ranks on emulated hosts: the first `each` on host 0, the next on host 1, and so on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddpcheck.launchers.launcher import Launched, Launcher
from ddpcheck.launchers.mpi import Mpiexec, find_mpi
from ddpcheck.launchers.processes import Processes
from ddpcheck.ranks.channel import Listener

from .network import CONTROL_ADDRESS, INTERFACE, Network

_ENTER = """
rank=${PMI_RANK:-$RANK}
host=$((rank / LOCAL_WORLD_SIZE))
LOCAL_RANK=$((rank % LOCAL_WORLD_SIZE))
MPI_LOCALRANKID=$LOCAL_RANK
MPI_LOCALNRANKS=$LOCAL_WORLD_SIZE
export LOCAL_RANK MPI_LOCALRANKID MPI_LOCALNRANKS
eval "network=\\$DDPCHECK_HOST_$host"
exec nsenter --net="$network" -- "$@"
"""


@dataclass(frozen=True)
class Hosts:
    """The launcher `start_by` for hosts of `each` ranks: it starts all ranks here, and each rank first enters its
    host.
    """

    network: Network
    start_by: Launcher
    each: int = 1
    name: str = "hosts"

    def unavailable(self) -> str | None:
        return self.start_by.unavailable() or cannot_carry(self.start_by)

    def listener(self) -> Listener:
        """A listener on a network that all hosts reach: an abstract Unix socket exists on its own host only."""
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
            "GLOO_SOCKET_IFNAME": INTERFACE,  # otherwise Gloo uses the address of the host name
        }
        if isinstance(self.start_by, Mpiexec):  # it assumes that all ranks share a host, and memory
            own |= {**self.start_by.over_tcp(), "FI_TCP_IFACE": INTERFACE, "UCX_NET_DEVICES": INTERFACE}
        words = ["sh", "-c", _ENTER, "enter", *command]
        return self.start_by.start(words, world_size, {**variables, **own}, inherit_output=inherit_output)


def cannot_carry(launcher: Launcher) -> str | None:
    """The reason why ranks of this launcher cannot run on emulated hosts; None if they can."""
    if isinstance(launcher, Mpiexec):
        mpi = find_mpi()
        # Hydra communicates with its ranks through inherited files
        if mpi is None or mpi.flavour in ("mpich", "intel"):
            return None
        return f"{mpi.version} communicates with its ranks over this host's own network; use MPICH (pip install mpich)"
    if launcher.name == Processes.name:
        return None
    return f"its ranks are started by {launcher.name}, which does not support emulated hosts"
