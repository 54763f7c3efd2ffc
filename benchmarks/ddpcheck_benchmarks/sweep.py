"""The whole sweep: launches of all implementations in turn (A B A B), so that a drift of the machine meets all alike."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol

from ddpcheck.adapter import Adapter
from ddpcheck.attaching import StartFailed
from ddpcheck.launchers.processes import Processes
from ddpcheck.operations.measure import Collective
from ddpcheck.references import missing_modules, resolve
from ddpcheck.session import Session

from .cases import Case, cases, memory_needed
from .collectives import Plan, measure_collectives
from .effort import Effort
from .hosts.launcher import Hosts
from .hosts.link import Fabric
from .hosts.network import network
from .machine import available_memory
from .records import Point, Results
from .sizes import named
from .step_cases import StepCase, step_cases
from .steps import StepPlan, measure_step

_DEADLINE = 300.0  # seconds for one Job: the largest messages on the most ranks take a while


class Progress(Protocol):
    """Who wants to know how far the sweep is."""

    def expect(self, points: int) -> None:
        """So many points are to be measured in all."""
        ...

    def begin(self, what: str) -> None: ...

    def done(self, points: int) -> None: ...

    def end_session(self, text: str) -> None: ...


@dataclass(frozen=True)
class Wanted:
    """What to measure. sizes: bytes; oversubscribed_size: the largest where there are more ranks than cores.

    models: names of step_cases.MODELS; buckets: values of bucket_cap_mb. fabric: emulated hosts that ranks live on, each rank
    with a core of its own in as far as it waits for an accelerator.
    """

    adapters: tuple[str, ...]
    world_sizes: tuple[int, ...]
    collectives: tuple[Collective, ...]
    sizes: tuple[int, ...]
    oversubscribed_size: int
    models: tuple[str, ...]
    buckets: tuple[float, ...]
    effort: Effort
    seed: int = 0
    fabric: Fabric | None = None

    @property
    def link(self) -> str:
        return self.fabric.name if self.fabric else ""


@dataclass
class _Place:
    """One implementation at one world size, with what is to be measured there."""

    reference: str
    adapter: Adapter
    world_size: int
    cases: list[Case]
    steps: list[StepCase]
    crowded: bool
    plan: Plan = field(default_factory=dict)
    step_plan: StepPlan = field(default_factory=dict)

    def sizes(self) -> list[int]:
        """Bytes of everything that is measured here."""
        return [*(case.bytes for case in self.cases), *(case.bytes for case in self.steps)]

    @property
    def name(self) -> str:
        return f"{self.adapter.name}, {self.world_size} rank{'s' * (self.world_size > 1)}"


def sweep(wanted: Wanted, results: Results, progress: Progress) -> None:
    """Measure everything, launch after launch; the results are saved after every Session."""
    places = _places(wanted, results)
    effort = wanted.effort
    turns = [
        (launch, place)
        for launch in range(effort.launches)
        for place in places
        if not place.crowded or launch < effort.crowded_launches
    ]
    progress.expect(sum(effort.includes(size, launch) for launch, place in turns for size in place.sizes()))
    fabric = wanted.fabric
    with ExitStack() as opened:
        hosts = None
        if fabric is not None and places:
            most = max(fabric.hosts(place.world_size) for place in places)
            hosts = Hosts(opened.enter_context(network(most, fabric.rate)), fabric.each)
        for launch, place in turns:
            began = time.monotonic()
            try:
                _one_session(place, launch, wanted, results, progress, hosts)
            except StartFailed as failed:
                results.problems.append(f"{place.name}: {failed}")
            results.save()
            progress.end_session(
                f"launch {launch + 1} of {effort.launches}, {place.name}: {time.monotonic() - began:.1f} s"
            )


def _one_session(
    place: _Place, launch: int, wanted: Wanted, results: Results, progress: Progress, hosts: Hosts | None
) -> None:
    with Session(place.reference, place.world_size, deadline=_DEADLINE, launcher=hosts) as session:
        began = time.monotonic()
        session.start()
        _add_start(place, wanted.link, time.monotonic() - began, results)
        for case in place.steps:  # before the collectives, whose buffers would count as its memory
            if wanted.effort.includes(case.bytes, launch):
                progress.begin(f"launch {launch + 1}, {case.name}")
                measure_step(
                    session, case, wanted.effort, place.step_plan, results, hosts.network.sent if hosts else None
                )
                progress.done(1)
        before = 0

        def begin(case: Case) -> None:
            nonlocal before
            progress.done(before)
            before = 1
            progress.begin(f"launch {launch + 1}, {case.name}")

        measure_collectives(session, place.cases, launch, wanted.effort, place.plan, results, begin, wanted.seed)
        progress.done(before)


def _add_start(place: _Place, link: str, seconds: float, results: Results) -> None:
    """How long it took until every rank had come out of connect(): interpreters, imports and rendezvous."""
    name = f"startup[{'-'.join([place.adapter.name, f'p{place.world_size}', *[link] * bool(link)])}]"
    info = {"kind": "startup", "adapter": place.adapter.name, "world_size": place.world_size, "link": link}
    results.add(Point(name, "startup", {**info, "cores": results.environment["cores"]}), seconds)


def _places(wanted: Wanted, results: Results) -> list[_Place]:
    found = []
    memory = available_memory()
    for world_size in wanted.world_sizes:
        for name in wanted.adapters:
            adapter, reference = resolve(name)
            reason = _unusable(adapter, world_size, wanted.fabric)
            if reason:
                results.skip(f"{adapter.name}, world size {world_size}: {reason}")
                continue
            crowded = world_size > results.environment["cores"] and wanted.fabric is None
            sizes = [size for size in wanted.sizes if not crowded or size <= wanted.oversubscribed_size]
            if len(sizes) < len(wanted.sizes):
                results.skip(
                    f"world size {world_size}: above {named(wanted.oversubscribed_size)}, as there are more ranks than cores"
                )
            chosen = []
            for case in cases(
                adapter.name, adapter.capabilities, world_size, wanted.collectives, sizes, link=wanted.link
            ):
                if memory_needed(case) > memory / 2:
                    results.skip(f"{case.name}: needs {memory_needed(case) >> 20} MiB, {memory >> 20} MiB are free")
                else:
                    chosen.append(case)
            found.append(
                _Place(
                    reference,
                    adapter,
                    world_size,
                    chosen,
                    _steps(adapter, world_size, crowded, wanted, results),
                    crowded,
                )
            )
    return found


def _steps(adapter: Adapter, world_size: int, crowded: bool, wanted: Wanted, results: Results) -> list[StepCase]:
    if adapter.capabilities.lacks("facet:replica", world_size):
        return []
    models = [model for model in wanted.models if not crowded or model == "small"]
    if len(models) < len(wanted.models):
        results.skip(f"world size {world_size}: steps of all models but small, as there are more ranks than cores")
    return list(step_cases(adapter.name, world_size, models, () if crowded else wanted.buckets, wanted.link))


def _unusable(adapter: Adapter, world_size: int, fabric: Fabric | None) -> str | None:
    if fabric is not None and adapter.launcher.name != Processes.name:
        return f"its ranks are started by {adapter.launcher.name}, which knows nothing of emulated hosts"
    if fabric is not None and (reason := fabric.refuses(world_size)):
        return reason
    absent = missing_modules(adapter)
    if absent:
        return f"not installed: {', '.join(absent)}"
    return adapter.launcher.unavailable() or adapter.capabilities.refuses(world_size)
