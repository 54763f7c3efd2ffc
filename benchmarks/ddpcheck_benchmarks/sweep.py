"""The whole sweep: launches of all implementations in turn (A B A B), so that drift of the machine affects all
equally.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Protocol

from ddpcheck.counted_nouns import counted
from ddpcheck.launchers.launcher import Launcher
from ddpcheck.ranks.attaching import StartFailed
from ddpcheck.session import Session

from .collective_cases import Case
from .collectives import measure_collectives
from .hosts.launcher import Hosts
from .hosts.network import Network, network
from .plan import PlannedMeasurement, Wanted, planned_measurements
from .pytest_benchmark_records import Point, Results
from .step_cases import StepCase
from .steps import measure_step
from .time_budget import Allowance

_DEADLINE = 300.0  # seconds for one Job, with the largest messages on the most ranks


class Progress(Protocol):
    """The interface for progress reports of a sweep."""

    def expect(self, points: int, text: str) -> None:
        """`points` are to be measured in all; `text` says how long this should take."""
        ...

    def begin(self, what: str) -> None: ...

    def done(self, points: int) -> None: ...

    def end_session(self, text: str) -> None: ...


def sweep(wanted: Wanted, results: Results, progress: Progress) -> None:
    """Measure everything, launch after launch; save the results after every Session."""
    chosen = planned_measurements(wanted, results)
    points = sum(len(planned.items) for planned in chosen)
    launches = wanted.effort.launches
    starts = counted(len(chosen), "start-up")
    progress.expect(
        points,
        f"{counted(points, 'point')} and {starts} in {launches} launches; no measurement begins after "
        f"{wanted.minutes:g} minutes, so some points may get fewer launches",
    )
    fabric = wanted.fabric
    with ExitStack() as opened:
        hosts = None
        if fabric is not None and chosen:
            hosts = opened.enter_context(
                network(max(fabric.hosts(planned.world_size) for planned in chosen), fabric.rate)
            )
        _Sweep(wanted, results, progress, hosts).run(chosen, points)


class _Sweep:
    def __init__(self, wanted: Wanted, results: Results, progress: Progress, hosts: Network | None) -> None:
        self._wanted, self._results, self._progress, self._hosts = wanted, results, progress, hosts
        self._allowance = Allowance(60 * wanted.minutes)
        self._measured = 0.0  # seconds, without the start of ranks
        self._left_out: list[StepCase | Case] = []
        self._due_again: dict[str, StepCase | Case] = {}  # measured once, and planned for further launches
        self._shortened: dict[str, StepCase | Case] = {}  # of these, those that got fewer launches than planned

    def run(self, chosen: list[PlannedMeasurement], points: int) -> None:
        launches = self._wanted.effort.launches
        began = time.monotonic()
        for launch in range(launches):
            for planned in chosen:
                self._launch(planned, launch)
            if launch or launches == 1:
                continue
            fixed = (time.monotonic() - began - self._measured) * (launches - 1)
            seconds = self._allowance.decide(fixed)
            again = [self._again(planned, item) for planned in chosen for item in self._granted(planned)]
            self._shortened = {name: item for name, item in self._due_again.items() if not self._allowance.grants(name)}
            if self._due_again:
                self._progress.expect(points + sum(again), self._further(seconds))
        why = f"there was no time left (--minutes {self._wanted.minutes:g})"
        if self._left_out:
            self._results.skip(f"{counted(len(self._left_out), 'point')}: {why}: {_named(self._left_out)}")
        if self._shortened:
            fewer = list(self._shortened.values())
            self._results.skip(
                f"some of {launches} launches, for {counted(len(fewer), 'point')}: {why}: {_named(fewer)}"
            )

    def _further(self, seconds: float) -> str:
        """How long the further launches should take, and for how many of the points there is no time."""
        due, without = len(self._due_again), len(self._shortened)
        if due == without:
            points = counted(due, "point")
            return f"no time for further launches: {points} measured in one launch (--minutes {self._wanted.minutes:g})"
        fewer = f"; no time for the other {without}" * bool(without)
        return f"about {_lasting(seconds)} more for further launches of {counted(due - without, 'point')}{fewer}"

    def _granted(self, planned: PlannedMeasurement) -> list[StepCase | Case]:
        return [item for item in planned.items if self._allowance.grants(item.name)]

    def _again(self, planned: PlannedMeasurement, item: StepCase | Case) -> int:
        """The number of further launches in which to measure the point, if there is time."""
        effort = self._wanted.effort
        most = effort.crowded_launches if planned.crowded else effort.launches
        return sum(effort.includes(item.bytes, launch) for launch in range(1, min(most, effort.launches)))

    def _launch(self, planned: PlannedMeasurement, launch: int) -> None:
        """Run one Session; none if it has nothing to measure."""
        wanted = (
            [item for item in self._granted(planned) if launch <= self._again(planned, item)]
            if launch
            else planned.items
        )
        due = {item.name for item in wanted if self._fits(item, launch)}
        if not due:
            return
        began = time.monotonic()
        try:
            with Session(
                planned.reference, planned.world_size, deadline=_DEADLINE, launcher=self._launcher(planned)
            ) as session:
                session.start()
                _add_start(planned, self._wanted.link, time.monotonic() - began, self._results)
                self._measure(session, planned, launch, due)
        except StartFailed as failed:
            self._results.problems.append(f"{planned.name}: {failed}")
        self._results.save()
        seconds = time.monotonic() - began
        self._progress.end_session(
            f"launch {launch + 1} of {self._wanted.effort.launches}, {planned.name}: {seconds:.1f} s"
        )

    def _launcher(self, planned: PlannedMeasurement) -> Launcher | None:
        """The launcher; None for the implementation's own."""
        fabric = self._wanted.fabric
        if fabric is None or self._hosts is None:
            return None
        return Hosts(self._hosts, planned.adapter.launcher, fabric.each)

    def _measure(self, session: Session, planned: PlannedMeasurement, launch: int, due: set[str]) -> None:
        sent = self._hosts.sent if self._hosts else None
        effort, results = self._wanted.effort, self._results
        for step in planned.steps:  # before the collectives, whose buffers would count as its memory
            if step.name in due and self._begin(step, launch):
                began = time.monotonic()
                measure_step(session, step, effort, planned.step_repetitions, results, sent)
                self._end(planned, step, launch, time.monotonic() - began)
        cases = [case for case in planned.cases if case.name in due and self._fits(case, launch)]
        for case, seconds in measure_collectives(
            session,
            cases,
            launch,
            effort,
            planned.call_repetitions,
            results,
            lambda case: self._begin(case, launch),
            self._wanted.seed,
        ):
            self._end(planned, case, launch, seconds)

    def _fits(self, item: StepCase | Case, launch: int) -> bool:
        """Whether there is time for the point. If not after the first launch, the point gets fewer launches."""
        fits = self._allowance.fits(item.name)
        if not fits and launch:
            self._shortened[item.name] = item
        elif not fits and item not in self._left_out:
            self._left_out.append(item)
        return fits

    def _begin(self, item: StepCase | Case, launch: int) -> bool:
        if not self._fits(item, launch):
            return False
        self._progress.begin(f"launch {launch + 1}, {item.name}")
        return True

    def _end(self, planned: PlannedMeasurement, item: StepCase | Case, launch: int, seconds: float) -> None:
        if not launch:
            self._measured += seconds
            self._allowance.took(item.name, seconds, self._again(planned, item))
            if self._again(planned, item):
                self._due_again[item.name] = item
        self._progress.done(1)


def _lasting(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else f"{seconds / 60:.1f} minutes"


def _named(items: Sequence[StepCase | Case]) -> str:
    """The points by implementation and world size: "torch_ddp on 2 ranks: step (2), all_reduce (5)"."""
    kinds: dict[str, Counter[str]] = {}
    for item in items:
        where = f"{item.adapter} on {counted(item.world_size, 'rank')}"
        kinds.setdefault(where, Counter())[item.name.partition("[")[0]] += 1
    return "; ".join(
        f"{where}: {', '.join(f'{kind} ({count})' for kind, count in counts.items())}"
        for where, counts in kinds.items()
    )


def _add_start(planned: PlannedMeasurement, link: str, seconds: float, results: Results) -> None:
    """Record the seconds until connect() returned on every rank: interpreters, imports and rendezvous."""
    name = f"startup[{'-'.join([planned.adapter.name, f'p{planned.world_size}', *[link] * bool(link)])}]"
    info = {"kind": "startup", "adapter": planned.adapter.name, "world_size": planned.world_size, "link": link}
    results.add(Point(name, "startup", {**info, "cores": results.environment["cores"]}), seconds)
