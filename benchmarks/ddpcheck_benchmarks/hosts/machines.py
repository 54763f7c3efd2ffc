"""Emulated hosts as on a cluster: each has a name, its own network and /dev/shm, and accepts ssh.

Programs, files and cores are this machine's. `ssh` is a stand-in: it enters the other host's namespaces with a fresh
environment, and leaves the command alone when the connection ends, as ssh does (connection.py). Namespaces end with the
process that created them, however that ends, and with the last process in them.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from .network import Network

_PROGRAMS = "/dev/shm/bin"
"""In a file system that each host mounts for itself, so that no clean-up is needed."""
_OVER_NETWORK = {"UCX_TLS": "tcp,self"}
"""Without it UCX, and with it MPICH, finds that these hosts share a memory, and sends nothing over their links."""
_KEPT = ("PATH", "HOME", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "LANG", *_OVER_NETWORK)
"""Variables that a login on a host of a cluster would set."""
_ENTER = "--net --uts --mount"

_HOLDER = """
set -e
hostname "$1"
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
printf '%s' "$2" > /dev/shm/hosts
mount --bind /dev/shm/hosts /etc/hosts
mkdir /dev/shm/bin
echo ready
exec cat > /dev/null
"""
"""Runs until its standard input ends, which the kernel ensures."""

_SSH = """#!/bin/sh
# options of ssh are accepted, and mean nothing here
while :; do
    case $1 in
        -[bcDEeFIiJLlmOopQRSWw]) shift 2 ;;
        -*) shift ;;
        *) break ;;
    esac
done
host=${{1#*@}}
shift
case $host in
{cases}
    *) echo "ssh: Could not resolve hostname $host" >&2; exit 255 ;;
esac
exec {python} -E -S {connection} env -i {kept} nsenter --target "$process" {enter} --wd="$HOME" sh -c "$*"
"""


@dataclass(frozen=True)
class Machine:
    """A running host. process: the process that keeps its namespaces alive."""

    name: str
    process: int

    def command(self, words: Sequence[str]) -> list[str]:
        """The command line that runs these words on this host, in the caller's folder and environment."""
        variables = {"PATH": f"{_PROGRAMS}:{os.environ.get('PATH', os.defpath)}"}
        variables |= {name: os.environ.get(name, value) for name, value in _OVER_NETWORK.items()}
        entering = ["nsenter", "--target", str(self.process), *_ENTER.split(), f"--wd={Path.cwd()}"]
        return [*entering, "env", *(f"{name}={value}" for name, value in variables.items()), *words]


@contextmanager
def machines(network: Network) -> Iterator[tuple[Machine, ...]]:
    """host0, host1 and so on, for each host of the network. OSError with the tool's message if one cannot be made."""
    names = [f"host{number}" for number in range(len(network.hosts))]
    table = "127.0.0.1 localhost\n" + "".join(
        f"{network.address(number)} {name}\n" for number, name in enumerate(names)
    )
    with ExitStack() as opened:
        made = tuple(
            Machine(name, opened.enter_context(_held(space.path, name, table)))
            for name, space in zip(names, network.hosts, strict=True)
        )
        for machine in made:
            program = Path(f"/proc/{machine.process}/root{_PROGRAMS}/ssh")
            program.write_text(_ssh(made, network), encoding="ascii")
            program.chmod(0o755)
        yield made


@contextmanager
def _held(network: str, name: str, table: str) -> Iterator[int]:
    """The process that keeps the namespaces of one host alive."""
    apart = ["unshare", "--uts", "--mount", "--propagation", "private"]
    words = ["nsenter", f"--net={network}", *apart, "sh", "-c", _HOLDER, "sh", name, table]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stderr is not None
        try:
            if holder.stdout.readline() != "ready\n":
                raise OSError(f"{name}: {holder.stderr.read().strip()}")
            yield holder.pid
        finally:
            holder.stdin.close()


def _ssh(made: Sequence[Machine], network: Network) -> str:
    cases = "\n".join(
        f"    {machine.name}|{network.address(number)}) process={machine.process} ;;"
        for number, machine in enumerate(made)
    )
    kept = " ".join(f'{name}="${name}"' for name in _KEPT if name in {**_OVER_NETWORK, **os.environ})
    connection = shlex.quote(str(Path(__file__).with_name("connection.py")))
    return _SSH.format(cases=cases, kept=kept, enter=_ENTER, python=shlex.quote(sys.executable), connection=connection)
