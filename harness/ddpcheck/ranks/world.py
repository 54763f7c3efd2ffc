"""The ranks of one start: their processes, and the driver's links to them."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..causes.machine import NO_FREE_PORT, NO_LOOPBACK
from ..launchers.fork_servers import RANK_PROGRAM
from ..launchers.launcher import Launched, Launcher
from ..launchers.orphaned_processes import Inode, clock_ticks, kill_leftover_processes
from ..launchers.ports import NoFreePort, has_loopback
from ..refused_resources import refusal_cause
from ..scratch_folder import scratch_of
from .attaching import StartFailed, attach_ranks, wait_for_connect
from .channel import CONTROL, SECRET, ChannelClosed, Listener
from .rank_interpreter import OURS, SAFE_PATH, Interpreter
from .rank_link import RankLink
from .start_conditions import StartConditions


class LaunchedRanks:
    """Ranks that start together. stop() ends them and leaves nothing behind. lacks: promises that they do not keep,
    with reasons.
    """

    def __init__(self, launcher: Launcher, world_size: int) -> None:
        self.links: list[RankLink] = []
        self.lacks: dict[str, str] = {}
        self._launcher = launcher
        self._world_size = world_size
        self._launched: Launched | None = None
        self._files: Path | None = None
        self._ending = threading.Lock()
        self._secret, self._since = "", clock_ticks()

    @property
    def launched(self) -> Launched:
        assert self._launched is not None, "nothing was started yet"
        return self._launched

    def start(
        self,
        reference: str,
        home: Interpreter | None,
        variables: Mapping[str, str],
        conditions: StartConditions | None,
        seconds: float,
        connect_seconds: float,
        grace: float,
    ) -> float:
        """Start the ranks; return the seconds that connect() took. StartFailed with all problems of all ranks.

        variables: further environment variables of the ranks. seconds: limit until all ranks have connected to the driver;
        connect_seconds: limit of connect() if `conditions` let the ranks in. grace: seconds for the others once one has failed.
        """
        listener = self._listener()
        self._secret = listener.secret
        self._files = scratch_of(listener.secret)
        try:
            command = home.command() if home else [*RANK_PROGRAM, reference]
            of_conditions = conditions.variables() if conditions is not None else {}
            self._launched = self._launch(command, {**_rank_variables(listener, home), **variables, **of_conditions})
            limit = time.monotonic() + seconds
            self.links = attach_ranks(self._launched, self._world_size, listener, seconds)
            if conditions is not None:
                conditions.let_in(self.links, socket.gethostname())
                limit = min(limit, time.monotonic() + connect_seconds)
            since = time.monotonic()
            self.lacks = wait_for_connect(self.links, self._launched, limit, grace)
            return time.monotonic() - since
        except BaseException:
            self.stop()
            raise
        finally:
            listener.close()

    def _launch(self, command: list[str], variables: dict[str, str]) -> Launched:
        """Call the launcher. StartFailed if the machine denies a resource that all ranks need."""
        ranks = f"{self._world_size} ranks"
        if not hasattr(self._launcher, "listener") and not has_loopback():
            raise StartFailed([f"127.0.0.1 cannot be reached, so the {ranks} cannot meet"], causes=[NO_LOOPBACK()])
        try:
            return self._launcher.start(command, self._world_size, variables)
        except NoFreePort as error:
            raise StartFailed([str(error)], causes=[NO_FREE_PORT(first=error.first, last=error.last)]) from error
        except OSError as error:
            causes = refusal_cause(error)
            if not causes:
                raise
            raise StartFailed([f"{self._launcher.name} cannot start {ranks}: {error}"], causes=causes) from error

    def _listener(self) -> Listener:
        make = getattr(self._launcher, "listener", None)
        return make() if make is not None else Listener()

    def send(self, frame: bytes) -> None:
        """Send a frame to every rank. The end of a rank is noticed when its answer is read."""
        for link in self.links:
            with suppress(ChannelClosed):
                link.jobs.send(frame)

    def leave(self, grace: float) -> None:
        """Let the ranks close their facets and end, for `grace` seconds at most."""
        self.send(b"")
        limit = time.monotonic() + grace
        for link in self.links:
            link.jobs.settimeout(max(0.01, limit - time.monotonic()))
            with suppress(ChannelClosed, TimeoutError):
                link.jobs.receive()  # the end of the stream

    def kill_ranks(self) -> None:
        """Interrupt all waits for the ranks, from any thread."""
        with self._ending:
            for link in self.links:
                link.kill()

    def stop(self) -> None:
        """Kill all processes of the ranks and remove their files. Safe to call twice."""
        with self._ending:  # another thread must not kill links that are closed
            links, self.links = self.links, []
        for link in links:
            link.kill()
        files = set[Inode]().union(*(link.files.inodes for link in links if link.files))
        launched, self._launched = self._launched, None
        if launched is not None:
            launched.kill()
            # ranks that a user started may share their environment with other programs
            mark = "" if hasattr(self._launcher, "listener") else f"{SECRET}={self._secret}"
            kill_leftover_processes(self._since, mark, files)
        for link in links:
            link.close()
        if self._files is not None:
            shutil.rmtree(self._files, ignore_errors=True)

    @property
    def pids(self) -> list[int]:
        """Process ids of the ranks on this host."""
        here = socket.gethostname()
        return [link.pid for link in self.links if link.host == here]


def _rank_variables(listener: Listener, home: Interpreter | None) -> dict[str, str]:
    return {
        CONTROL: listener.address,
        SECRET: listener.secret,
        **(home.variables() if home else _import_path()),
        # one thread of BLAS and OpenMP for each rank; otherwise the ranks compete for the cores
        **{f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")},
    }


def _import_path() -> dict[str, str]:
    """Return variables by which the ranks can import all modules that this process can.

    The ranks search the working folder last, as this process does, so a json.py there does not replace Python's own.
    """
    package, folder = Path(__file__).resolve().parents[1], Path.cwd()
    entries = [Path(entry).resolve() for entry in sys.path if entry and Path(entry).is_dir()]
    libraries = [place for place, entry in enumerate(entries) if "lib/python" in str(entry)]
    first = folder in entries[: min(libraries, default=0)]
    kept = [entry for entry in entries if "lib/python" not in str(entry) or "site-packages" in str(entry)]
    path = [entry for entry in kept if first or entry != folder]
    if first or os.environ.get(SAFE_PATH):
        return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(map(str, [*path, package, folder])))}
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(map(str, [*path, package]))), SAFE_PATH: OURS}
