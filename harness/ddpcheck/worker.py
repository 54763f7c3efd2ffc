"""One rank: `python -m ddpcheck.worker ADAPTER`, started once per rank by any launcher.

It attaches to the driver named by DDPCHECK_CONTROL and DDPCHECK_SECRET (or DDPCHECK_SECRET_FILE), connects the adapter,
and runs Jobs until the driver ends it. A second connection, served by a thread, reports the stack of a stuck rank to
the driver. When that connection breaks, the driver has ended, and the rank ends itself, so that nothing stays behind.
"""

from __future__ import annotations

import gc
import json
import os
import secrets
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from .contract.rank_context import RankContext, rank_context
from .contract.validation import causes_of_facets, problems_of_facets
from .execution import ContractViolation, Execution
from .execution.broken_connections import sockets_at_start
from .execution.process_resources import count_resources_at_start
from .execution.sent_bytes import transferred_within
from .execution.short_reads import shorten_reads
from .execution.small_buffers import waiting_bytes
from .execution.taken_ports import take_released_ports
from .job import Job
from .launchers.agent import SCRATCH
from .launchers.mpi_segments import remove_segments, segments_of
from .launchers.orphaned_processes import RUN, clock_ticks, kill_leftover_processes
from .launchers.process_handles import processes_under
from .operations.start import GATED, HOSTS, OWN_FOLDER, SHORT_READS, TAKEN_PORTS
from .ranks.channel import CONTROL, SECRET, SECRET_FILE, Channel, ChannelClosed, connect
from .ranks.memory_files import WrittenMemoryFiles
from .ranks.rank_interpreter import OURS, SAFE_PATH, search_working_folder_last
from .ranks.simulated_hosts import set_simulated_hosts
from .refused_resources import refusal_cause, refused_resource
from .running.adapter_lookup import resolve
from .scratch_folder import own_temporary_folder, scratch_of
from .storage import codec
from .trace import MAKING, RankTrace, Record, Unread, rank_to_plain

DRIVER_GONE = 75
_MOMENT = 0.5
"""Seconds in which bytes that move show that a rank is in no deadlock."""


class Worker:
    """The state of one rank between Jobs."""

    def __init__(self, reference: str, secret: str) -> None:
        self._secret, self._since = secret, clock_ticks()
        os.environ[RUN] = secrets.token_hex(8)  # marks programs that this rank starts
        self._reference = reference
        self._context: RankContext = rank_context()
        self._execution: Execution | None = None
        self._folder = scratch_of(secret)
        self._jobs = 0  # the count is equal on all ranks, since all get all Jobs
        self._files = WrittenMemoryFiles() if hasattr(os, "memfd_create") else None

    def serve(self, address: str) -> None:
        jobs = self._attach(address, "jobs")
        sentinel = self._attach(address, "sentinel")
        self._remove_folder()  # files of an earlier session with the same secret, if a user chose it
        try:
            threading.Thread(target=self._watch, args=(sentinel,), daemon=True, name="ddpcheck-sentinel").start()
            adapter, _ = resolve(self._reference)
            if GATED in os.environ:
                jobs.receive()  # the driver lets the rank enter connect()
            if OWN_FOLDER in os.environ:
                own_temporary_folder(self._folder)
            if SHORT_READS in os.environ:
                shorten_reads()
            if TAKEN_PORTS in os.environ:
                take_released_ports()
            count_resources_at_start()  # counts that close() may not exceed
            sockets_at_start()  # these sockets stay whole when the implementation's are broken
            facets = adapter.connect(self._context)
            problems = problems_of_facets(facets, adapter.capabilities, self._context)
            causes = [cause.to_plain() for cause in causes_of_facets(facets, self._context)]
        except BaseException as error:
            causes = [cause.to_plain() for cause in refusal_cause(error)]
            jobs.send(
                codec.encode({"problems": [_short(error)], "error": _readable(error), "causes": causes, "lacks": {}})
            )
            return
        gc.freeze()  # objects from start-up stay: the collector need not visit them again
        lacks = {} if problems else dict(facets.lacks)
        jobs.send(codec.encode({"problems": problems, "error": "", "causes": causes, "lacks": lacks}))
        while True:
            message = jobs.receive()
            if not message:
                break
            jobs.send(codec.encode(rank_to_plain(self._run(facets, Job.from_plain(json.loads(message))))))
        self._remove_folder()  # this host may differ from the driver's
        if facets.close is not None:
            facets.close()

    def _remove_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _attach(self, address: str, purpose: str) -> Channel:
        greeting = {
            "purpose": purpose,
            "rank": self._context.rank,
            "world_size": self._context.world_size,
            "engine": self._context.engine,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "files": self._files.numbers if self._files else (),
        }
        return connect(address, self._secret, codec.encode(greeting))

    def _run(self, facets: Any, job: Job) -> RankTrace:
        rank = self._context.rank
        enter = self._files.enter if self._files else (lambda operation: None)
        self._jobs += 1
        execution = self._execution = Execution(facets, job, rank, enter, f"{self._folder}{os.sep}{self._jobs}")
        try:
            execution.run()
        except (Exception, SystemExit) as error:
            return _failed(rank, tuple(execution.records), time.monotonic(), error)
        return RankTrace(rank, "done", tuple(execution.records))

    def _watch(self, sentinel: Channel) -> None:
        """Answer each request of the driver with the stack of the main thread."""
        main = threading.main_thread().ident
        while True:
            try:
                sentinel.receive()
                execution = self._execution
                frame = sys._current_frames().get(main or 0)
                stack = "".join(traceback.format_stack(frame)) if frame else ""
                records = tuple(execution.records) if execution else ()
                rank, unread = self._context.rank, Unread(*waiting_bytes())
                moved = transferred_within(_MOMENT)
                trace = RankTrace(rank, "hung", records, stack=_trimmed(stack), unread=unread, transferred=moved)
                sentinel.send(codec.encode(rank_to_plain(trace)))
            except ChannelClosed:
                self.end_alone()

    def end_alone(self) -> NoReturn:
        """End without the driver, and remove the files and processes that the driver would have removed."""
        for process in processes_under(os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        inodes = self._files.inodes if self._files else set()
        kill_leftover_processes(self._since, f"{RUN}={os.environ[RUN]}", inodes)
        self._remove_folder()
        if scratch := os.environ.get(SCRATCH):
            shutil.rmtree(scratch, ignore_errors=True)
        _leave(DRIVER_GONE)


def _failed(rank: int, records: tuple[Record, ...], at: float, error: Exception | SystemExit) -> RankTrace:
    """The record of a rank that this exception ended."""
    if isinstance(error, ContractViolation):
        return RankTrace(
            rank, "invalid", records, str(error), failed_at=at, wrong_form=error.form, missing=error.missing
        )
    if isinstance(error, SystemExit):  # it would end the program: report it with its place instead
        return RankTrace(rank, "died", records, _readable(error), failed_at=at)
    return RankTrace(rank, "raised", records, _readable(error), failed_at=at, refused=refused_resource(error))


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _readable(error: BaseException) -> str:
    """The traceback from the implementation's first frame on, without the harness's own frames."""
    frames = traceback.extract_tb(error.__traceback__)
    own = str(Path(__file__).resolve().parent)
    kept = next((i for i, frame in enumerate(frames) if not frame.filename.startswith(own)), 0)
    notes = getattr(error, "__notes__", [])
    made = [f"{MAKING}\n"] if MAKING in notes else []
    if made:
        notes.remove(MAKING)
    text = made + traceback.format_list(frames[kept:]) + traceback.format_exception_only(error)
    return "".join(text).rstrip()


def _trimmed(stack: str) -> str:
    """The stack from the operation's runner on, or from the call in this module: the implementation's part."""
    at = stack.rfind(f"{Path(__file__).with_name('execution')}{os.sep}")
    if at < 0:
        at = stack.find('\n  File "', stack.rfind(f'"{__file__}", line')) + 3
    line = stack.rfind("\n", 0, at) + 1 if at >= 0 else 0
    return stack[line:].rstrip()


def _secret() -> str:
    """The secret; empty if it was not set."""
    if SECRET in os.environ or SECRET_FILE not in os.environ:
        return os.environ.get(SECRET, "")
    try:
        return Path(os.environ[SECRET_FILE]).read_text(encoding="ascii").strip()
    except OSError as error:
        sys.exit(f"the secret file cannot be read ({error}): copy it from the driver's host")


def main() -> NoReturn:
    secret = _secret()
    if len(sys.argv) != 2 or CONTROL not in os.environ or not secret:
        sys.exit(
            f"usage: {CONTROL}=... {SECRET_FILE}=... python -m ddpcheck.worker ADAPTER\n"
            "ddpcheck starts this program itself; start it by hand only for `ddpcheck check --attach`, which prints the command"
        )
    search_working_folder_last()
    if os.environ.get(SAFE_PATH) == OURS:
        del os.environ[SAFE_PATH]  # programs that the implementation starts do not need it
    # also under -W error: checks draw values that are not finite, about which NumPy may warn
    warnings.filterwarnings("ignore", r"(invalid value|overflow|underflow|divide by zero) encountered", RuntimeWarning)
    # a shell's background job ignores interrupts, and its children would, too
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if HOSTS in os.environ:
        set_simulated_hosts(os.environ, [int(size) for size in os.environ[HOSTS].split(",")])
    worker = Worker(sys.argv[1], secret)
    try:
        worker.serve(os.environ[CONTROL])
    except ChannelClosed:
        worker.end_alone()
    except ConnectionRefusedError:  # the driver has ended during the start, or the address is wrong
        traceback.print_exc()
        worker.end_alone()
    # threads and exit handlers of an implementation must not crash a finished rank at exit
    sys.stdout.flush()
    sys.stderr.flush()
    _leave(0)


def _leave(status: int) -> NoReturn:
    """Remove the segments that MPI keeps, and end this process without its exit handlers, which would do so."""
    remove_segments(segments_of())
    os._exit(status)


if __name__ == "__main__":
    main()
