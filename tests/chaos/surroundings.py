"""Surroundings of a command: too small a disk, no shared memory, a network of its own. Made by namespaces, which end
with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

OUT = "out"
"""The folder of results and checkpoints, in the command's working folder."""
_EXEC = 'exec "$@"'


@dataclass(frozen=True)
class Surroundings:
    """shell: commands that run before, in namespaces that unshare makes with these flags. last: runs the command."""

    flags: tuple[str, ...]
    shell: str
    last: str = _EXEC

    def around(self, command: Sequence[str]) -> list[str]:
        return ["unshare", *self.flags, "sh", "-ec", f"{self.shell}\n{self.last}", "sh", *command]


_NO_SHARED_MEMORY = """
devices=$PWD/devices; mkdir "$devices"
mount -t tmpfs none "$devices"
for name in null zero full random urandom tty; do
    touch "$devices/$name"
    mount --bind "/dev/$name" "$devices/$name"
done
ln -s /proc/self/fd "$devices/fd"
mount --rbind "$devices" /dev
mount -t tmpfs none "$TMPDIR"
"""
SMALL_SHARED_MEMORY = Surroundings(("-m",), "mount -t tmpfs -o size=64k none /dev/shm")
FULL_SHARED_MEMORY = Surroundings(
    ("-m",), "mount -t tmpfs -o size=64k none /dev/shm; head -c 65536 /dev/zero >/dev/shm/filler"
)
READ_ONLY_SHARED_MEMORY = Surroundings(("-m",), "mount -t tmpfs -o ro none /dev/shm")
NO_SHARED_MEMORY = Surroundings(("-m",), _NO_SHARED_MEMORY)
FULL_TEMPORARY_FOLDER = Surroundings(
    ("-m",), 'mount -t tmpfs -o size=16k none "$TMPDIR"; head -c 16384 /dev/zero >"$TMPDIR/filler"'
)
SMALL_TEMPORARY_FOLDER = Surroundings(("-m",), 'mount -t tmpfs -o size=64k none "$TMPDIR"')
FULL_DISK = Surroundings(
    ("-m",),
    f"mkdir kept; mount -t tmpfs -o size=8k none {OUT}",
    f'status=0; "$@" || status=$?; cp -a {OUT}/. kept/; exit $status',
)
_GROUPS = "/sys/fs/cgroup/pids"
FEW_PROCESSES = Surroundings(
    ("-m",),
    f"own={_GROUPS}/ddpcheck-chaos-$$; mkdir $own; echo 12 >$own/pids.max; echo $$ >$own/cgroup.procs",
    f'status=0; "$@" || status=$?; echo $$ >{_GROUPS}/cgroup.procs; rmdir $own || true; exit $status',
)
OWN_NETWORK = Surroundings(("-n",), "ip link set lo up")


@cache
def possible(around: Surroundings | None = None) -> bool:
    """Whether namespaces and the group of processes can be made here."""
    if around is FEW_PROCESSES and not os.access(f"{_GROUPS}/cgroup.procs", os.W_OK):
        return False
    return (
        os.geteuid() == 0
        and all(shutil.which(name) for name in ("unshare", "nsenter", "ip", "tc"))
        and subprocess.run(["unshare", "-m", "-n", "true"], check=False, capture_output=True).returncode == 0
    )


def _in_network_of(pid: int, *words: str) -> None:
    subprocess.run(["nsenter", "-t", str(pid), "-n", *words], check=False, capture_output=True)


def cut_link(pid: int) -> None:
    """Lose all packets from now on."""
    _in_network_of(pid, "ip", "link", "set", "lo", "down")


def slow_link(pid: int) -> None:
    """Limit the link to a kilobyte per second."""
    _in_network_of(
        pid, *["tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "8kbit", "burst", "2kb", "latency", "1s"]
    )


def full_link(pid: int) -> None:
    """Make the link so slow that packets are soon lost: a queue of two kilobytes."""
    _in_network_of(
        pid, *["tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "8kbit", "burst", "2kb", "limit", "2kb"]
    )
