"""A Session: the ranks of one adapter at one world size, started once and reused for thousands of Jobs.

    with Session("numpy_sockets", world_size=2) as session:
        trace = session.run(job)

Every wait has a deadline. A rank that raises, dies or hangs is recorded in the Trace, and the ranks are started again
before the next Job. The control channel is the harness's own, so a stuck implementation cannot block it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import replace
from typing import Self

from .causes.machine import SYSTEM_REFUSES_RESOURCE
from .check_levels import Level, promises_at_level
from .contract import Capabilities
from .contract.adapter import Adapter
from .contract.asked_promises import watched, withdrawn
from .contract.needs import Need
from .job import Job
from .launchers.failing_rank_program import Trial, run_trial
from .launchers.fork_servers import ForkServers
from .launchers.launcher import EngineLauncher, ForkServerLauncher, Launcher, ParentProcessLauncher, TcpLauncher
from .ranks.attaching import StartFailed
from .ranks.foreign_clients import ForeignClients
from .ranks.hang_detection import gather_reports
from .ranks.rank_interpreter import Interpreter
from .ranks.start_conditions import LEAST_SECONDS, StartConditions, neighbour_job
from .ranks.world import LaunchedRanks
from .running.adapter_lookup import reference_of, resolve
from .storage.dataclass_json import to_json
from .trace import RankTrace, Trace
from .verdict import CannotTell, Diagnosis, Refused

_IN_FLIGHT = 8
_SMALL = 1 << 14


class Session:
    """Ranks that run Jobs.

    adapter: an Adapter, or its reference (adapter_lookup.py). reference: by which ranks find an Adapter object, if
    known. deadline: seconds for one operation of a Job. grace: seconds for the other ranks once one has failed.
    start_deadline: seconds until all ranks are connected. effort: the number of Jobs of a drawn check. While `brief` is
    set, a drawn check runs one Job, and a failing Job is not made smaller. told: the ids of causes that other checks'
    failures have told; a check may look for others. shrinks: failing Jobs are made smaller. deep: checks run their
    longest Jobs, too.
    random_seed: None makes draws repeatable. launcher: used instead of the adapter's. home: the interpreter and import
    path of ranks that see other code than this process. fork_servers: plain processes are forked from these.
    capabilities: promises to judge instead of the adapter's. level: limits the features of models. replayed: the only
    Job that checks judge, instead of drawn Jobs. lacks: promises that the ranks withdraw when they start, with reasons.
    """

    def __init__(
        self,
        adapter: Adapter | str,
        world_size: int,
        *,
        reference: str = "",
        deadline: float = 10.0,
        grace: float = 2.0,
        start_deadline: float = 120.0,
        effort: int = 25,
        shrinks: bool = True,
        deep: bool = False,
        random_seed: int | None = None,
        launcher: Launcher | None = None,
        home: Interpreter | None = None,
        fork_servers: ForkServers | None = None,
        capabilities: Capabilities | None = None,
        level: Level = Level.STANDARD,
        replayed: Job | None = None,
    ) -> None:
        self.adapter: Adapter
        self.reference: str
        if isinstance(adapter, Adapter) and reference:
            self.adapter, self.reference = adapter, reference
        else:
            self.adapter, self.reference = resolve(adapter if isinstance(adapter, str) else reference_of(adapter))
        self.world_size = world_size
        self.deadline = deadline
        self.grace = grace
        self.start_deadline = start_deadline
        self.effort = effort
        self.deep = deep
        self.brief = False
        self.told: frozenset[str] = frozenset()
        self.shrinks = shrinks
        self.random_seed = random_seed
        if capabilities is not None:
            self.adapter = replace(self.adapter, capabilities=capabilities)
        self.asked: set[str] = set()
        self.lacks: dict[str, str] = {}
        self.level = level
        self.replayed = replayed
        self._promised = self.adapter.capabilities
        self._capabilities = watched(promises_at_level(self._promised, level), self.asked.add)
        self.jobs_run: int = 0
        self.starts: int = 0
        self._launcher = launcher or self.adapter.launcher
        if fork_servers is not None and isinstance(self._launcher, ForkServerLauncher):
            self._launcher = self._launcher.with_fork_servers(fork_servers)
        self._home = home
        self._world: LaunchedRanks | None = None
        self._busy = False
        self._connecting = 0.0  # the longest time of connect() in seconds
        self._over_tcp = False
        self._interrupted = False

    @property
    def _start_seconds(self) -> float:
        """The longest time in connect() for ranks that start under special conditions."""
        return max(LEAST_SECONDS, self.deadline, 4 * self._connecting)

    @property
    def capabilities(self) -> Capabilities:
        """The adapter's promises, without those that its ranks lack or the level leaves out. `asked` collects the names
        of promises that are read.
        """
        return self._capabilities

    def withdraws(self, needs: Iterable[Need]) -> str:
        """The reason why started ranks lack a needed promise; empty if they lack none."""
        return withdrawn(needs, self._promised, self.lacks, self.world_size) if self.lacks else ""

    @property
    def has_parent_process(self) -> bool:
        """Whether the ranks are forked or spawned by a process that has imported the adapter's module."""
        return isinstance(self._launcher, ParentProcessLauncher)

    @property
    def offers_tcp(self) -> bool:
        """Whether Jobs may ask for over_tcp."""
        return isinstance(self._launcher, TcpLauncher)

    @property
    def ends_ranks_together(self) -> bool:
        """Whether the launcher's engine ends all ranks when one has failed, so that others may not raise in time."""
        return isinstance(self._launcher, EngineLauncher) and self._launcher.ends_ranks_together

    @property
    def starts_again(self) -> bool:
        """Whether ranks can be started again: not if a user has started them."""
        return self._launcher.unavailable() is None

    def beside(self) -> Session:
        """A Session of the same kind for another world."""
        return Session(
            self.adapter,
            self.world_size,
            reference=self.reference,
            deadline=self.deadline,
            grace=self.grace,
            start_deadline=self.start_deadline,
            launcher=self._launcher,
            home=self._home,
            level=self.level,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(orderly=kind is None)

    # ------------------------------------------------------------------------------------------------------- running

    def run(self, job: Job) -> Trace:
        """Run one Job on all ranks. StartFailed if the ranks cannot be started."""
        self._not_busy()
        self._choose_transport(job)
        if job.start is not None:
            return self._run_afresh(job)
        self._send(self._frame(job))
        return self._next(deque((job,)))

    def run_many(self, jobs: Iterable[Job]) -> Generator[Trace, None, None]:
        """Run Jobs in order, several at the same time; yields one Trace each, in order.

        No other Job may run until this generator has ended or was closed.
        """
        self._not_busy()
        self._busy = True
        waiting: deque[Job] = deque()
        try:
            for job in jobs:
                if job.start is not None or job.over_tcp != self._over_tcp:
                    while waiting:
                        yield self._next(waiting)
                    self._choose_transport(job)
                if job.start is not None:
                    yield self._run_afresh(job)
                    continue
                frame = self._frame(job)
                # a large frame waits until the ranks read: two full socket buffers would block both sides
                room = _IN_FLIGHT if len(frame) <= _SMALL else 1
                while len(waiting) >= room:
                    yield self._next(waiting)
                self._submit_again(waiting)
                self._send(frame)
                waiting.append(job)
            while waiting:
                yield self._next(waiting)
        finally:
            while waiting and self._world is not None:
                # unread answers must not be taken for answers to the next Job; slow ranks are ended
                self._next(waiting, min(self.deadline, self.grace))
            self._busy = False

    def _choose_transport(self, job: Job) -> None:
        """End ranks that use another transport than the Job needs. CannotTell if the launcher has no choice."""
        if job.over_tcp == self._over_tcp:
            return
        if job.over_tcp and not self.offers_tcp:
            raise CannotTell(f"{self._launcher.name} cannot make its ranks send over TCP")
        self.close()
        self._over_tcp = job.over_tcp

    def _not_busy(self) -> None:
        if self._busy:
            raise RuntimeError("a run_many() of this Session has not ended: exhaust or close it first")

    def _next(self, waiting: deque[Job], deadline: float | None = None) -> Trace:
        """The Trace of the Job that was submitted first."""
        self._submit_again(waiting)
        assert self._world is not None
        links, launched = self._world.links, self._world.launched
        answers = gather_reports(waiting.popleft(), links, launched, deadline or self.deadline, self.grace)
        trace = Trace(tuple(answers[rank] for rank in range(self.world_size)), self.deadline)
        self.jobs_run += 1
        if not trace.completed:
            self._stop()  # the state of the ranks after a failure is unknown
            _judge_refusal(trace)
        self._go_on()
        return trace

    def _run_afresh(self, job: Job) -> Trace:
        """Start the ranks as the Job requests, and run it. CannotTell if they cannot be started again, or not in this
        way.
        """
        assert job.start is not None
        frame = self._frame(job)
        if (reason := self._launcher.unavailable()) is not None:
            raise CannotTell(reason)
        port = self._end_world(in_place=job.start.in_place)
        with ForeignClients() as strangers, self.beside() as neighbours:
            begin = StartConditions(job.start, strangers, port, neighbours.start)
            try:
                self.start(begin)
            except StartFailed as error:
                if not error.ranks:
                    raise
                self.jobs_run += 1
                fates = tuple(error.ranks.get(rank, RankTrace(rank, "done", ())) for rank in range(self.world_size))
                return begin.add_report(Trace(fates, self._start_seconds))
            begin.call_again()
            self._send(frame)
            theirs = neighbours.run(neighbour_job(job)) if job.start.neighbour else None
            trace = self._next(deque((job,)))
            return begin.add_report(trace if theirs is None or theirs.completed else theirs)

    def _end_world(self, *, in_place: bool) -> int | None:
        """End the running ranks. in_place: kill them, and return the port of their rendezvous."""
        if not in_place:
            self.close()
            return None
        if self._world is None:
            self.start()
        assert self._world is not None
        port = getattr(self._world.launched, "port", None)
        if port is None:
            raise CannotTell(
                f"{self._launcher.name} chooses the address at which ranks meet, so ranks cannot restart at a given one"
            )
        self._stop()
        return int(port.number)

    def _submit_again(self, waiting: Iterable[Job]) -> None:
        """Send Jobs again to new ranks after the ranks that had them have ended."""
        if self._world is None:
            for job in waiting:
                self._send(self._frame(job))

    def _frame(self, job: Job) -> bytes:
        if job.world_size != self.world_size:
            raise ValueError(f"a Job for {job.world_size} ranks cannot run on a Session of {self.world_size}")
        return to_json(job)

    def _send(self, frame: bytes) -> None:
        if self._world is None:
            self.start()
        assert self._world is not None
        self._world.send(frame)

    def trial(self, failing: int, later: float, *, killed: bool = False) -> Trial:
        """Let the launcher start a program in which one rank fails or is killed, and the others fail `later` seconds
        afterwards (launchers/failing_rank_program.py). CannotTell if the launcher cannot.
        """
        reason = self._launcher.unavailable()
        if reason is not None:
            raise CannotTell(reason)
        self.jobs_run += 1
        return run_trial(self._launcher, self.world_size, failing, self.deadline, later, killed=killed)

    # ------------------------------------------------------------------------------------------------ start and stop

    def start(self, conditions: StartConditions | None = None) -> None:
        """Start the ranks now (run does it when needed). StartFailed with all problems of all ranks."""
        reason = self._launcher.unavailable()
        if reason is not None:
            raise StartFailed([reason])
        self._go_on()
        self.starts += 1
        over_tcp = self._launcher.over_tcp() if self._over_tcp and isinstance(self._launcher, TcpLauncher) else {}
        world = LaunchedRanks(self._launcher, self.world_size)
        try:
            took = world.start(
                self.reference, self._home, over_tcp, conditions, self.start_deadline, self._start_seconds, self.grace
            )
        except StartFailed as error:
            if self._over_tcp:
                raise CannotTell(f"the ranks do not start when they must send over TCP: {error}") from error
            raise
        self._world = world
        self._connecting = max(self._connecting, took)
        self._narrow(world.lacks)

    def judge_promises(self, promised: Capabilities) -> None:
        """Judge these promises from now on, with the same ranks: ranks do not know what is promised."""
        self._promised = promised
        self.adapter = replace(self.adapter, capabilities=promised.without(self.lacks))
        self._capabilities = watched(promises_at_level(self.adapter.capabilities, self.level), self.asked.add)

    def _narrow(self, lacks: dict[str, str]) -> None:
        if lacks == self.lacks:
            return
        self.lacks = lacks
        self.judge_promises(self._promised)

    def close(self, *, orderly: bool = True) -> None:
        """Let the ranks finish (orderly), then make sure that none is left. Safe to call twice."""
        if orderly and self._world is not None:
            self._world.leave(self.grace)
        self._stop()

    def _stop(self) -> None:
        world, self._world = self._world, None
        if world is not None:
            world.stop()

    def interrupt(self) -> None:
        """From another thread: end the ranks, and raise KeyboardInterrupt in the thread that uses this Session."""
        self._interrupted = True
        world = self._world
        if world is not None:
            world.kill_ranks()

    def _go_on(self) -> None:
        if self._interrupted:
            raise KeyboardInterrupt

    @property
    def pids(self) -> list[int]:
        """Process ids of the ranks on this host."""
        return [] if self._world is None else self._world.pids


def _judge_refusal(trace: Trace) -> None:
    """Raise Refused if the system refused a resource to any rank."""
    for rank in trace.ranks:
        if rank.refused:
            place = (
                f"in operation {rank.last.operation} ({rank.last.kind})" if rank.last else "before its first operation"
            )
            cause = SYSTEM_REFUSES_RESOURCE(resource=rank.refused)
            raise Refused(
                Diagnosis(f"rank {rank.rank} was refused a resource {place}", (cause,), details=(rank.error,))
            )
