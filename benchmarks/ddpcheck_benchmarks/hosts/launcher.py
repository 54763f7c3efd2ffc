"""Start ranks on emulated hosts: the first `each` on host 0, the next on host 1, and so on."""

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
    """The launcher `start_by`, on hosts of `each` ranks: it starts them all here, and each goes to its host first of all."""

    network: Network
    start_by: Launcher
    each: int = 1
    name: str = "hosts"

    def unavailable(self) -> str | None:
        return self.start_by.unavailable() or cannot_carry(self.start_by)

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
        if isinstance(self.start_by, Mpiexec):  # it takes all ranks for those of one host, who share memory
            own |= {**self.start_by.over_tcp(), "FI_TCP_IFACE": INTERFACE, "UCX_NET_DEVICES": INTERFACE}
        words = ["sh", "-c", _ENTER, "enter", *command]
        return self.start_by.start(words, world_size, {**variables, **own}, inherit_output=inherit_output)


def cannot_carry(launcher: Launcher) -> str | None:
    """Why ranks that this launcher starts cannot go to emulated hosts; None if they can."""
    if isinstance(launcher, Mpiexec):
        mpi = find_mpi()
        # Hydra talks to its ranks through files that they inherit
        if mpi is None or mpi.flavour in ("mpich", "intel"):
            return None
        return f"{mpi.version} talks to its ranks over this host's own network; use MPICH (pip install mpich)"
    if launcher.name == Processes.name:
        return None
    return f"its ranks are started by {launcher.name}, which knows nothing of emulated hosts"
