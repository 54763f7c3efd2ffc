"""The plan of measurements: every implementation at every possible world size."""

from __future__ import annotations

from dataclasses import dataclass, field

from ddpcheck.available_memory import available_memory
from ddpcheck.contract import needs
from ddpcheck.contract.adapter import Adapter
from ddpcheck.counted_nouns import counted
from ddpcheck.operations.timing import Collective
from ddpcheck.running.adapter_lookup import missing_modules, resolve

from .collective_cases import Case, cases, memory_needed
from .collectives import CallRepetitions
from .hosts.launcher import cannot_carry
from .hosts.link import Fabric
from .iteration_count import Effort
from .pytest_benchmark_records import Results
from .sizes import named
from .step_cases import NAMED, StepCase, step_cases
from .steps import StepRepetitions


@dataclass(frozen=True)
class Wanted:
    """The requested measurements. sizes: bytes; oversubscribed_size: the largest if there are more ranks than cores.

    models: names of step_cases.MODELS; buckets: values of bucket_cap_mb. fabric: the emulated hosts on which ranks run;
    ranks that wait for an emulated accelerator hardly use a core. minutes: the limit for the whole run.
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
    minutes: float = 14.0

    @property
    def link(self) -> str:
        return self.fabric.name if self.fabric else ""


@dataclass
class PlannedMeasurement:
    """One implementation at one world size, with its cases."""

    reference: str
    adapter: Adapter
    world_size: int
    cases: list[Case]
    steps: list[StepCase]
    crowded: bool
    call_repetitions: CallRepetitions = field(default_factory=dict)
    step_repetitions: StepRepetitions = field(default_factory=dict)

    @property
    def items(self) -> list[StepCase | Case]:
        return [*self.steps, *self.cases]

    @property
    def name(self) -> str:
        return f"{self.adapter.name}, {counted(self.world_size, 'rank')}"


def planned_measurements(wanted: Wanted, results: Results) -> list[PlannedMeasurement]:
    """World size by world size. Impossible measurements are listed in the results as skipped, with the reason."""
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
                PlannedMeasurement(
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
    if needs.replica.lacking(adapter.capabilities, world_size):
        return []
    models = [model for model in wanted.models if model not in NAMED or model in adapter.named_models]
    if len(models) < len(wanted.models):
        results.skip(f"{adapter.name}: it does not build {', '.join(sorted(set(wanted.models) - set(models)))}")
    many, models = len(models), [model for model in models if not crowded or model == "small"]
    if len(models) < many:
        results.skip(f"world size {world_size}: steps of all models but small, as there are more ranks than cores")
    return list(step_cases(adapter.name, world_size, models, () if crowded else wanted.buckets, wanted.link))


def _unusable(adapter: Adapter, world_size: int, fabric: Fabric | None) -> str | None:
    if fabric is not None and (reason := cannot_carry(adapter.launcher) or fabric.refuses(world_size)):
        return reason
    absent = missing_modules(adapter)
    if absent:
        return f"not installed: {', '.join(absent)}"
    return adapter.launcher.unavailable() or adapter.capabilities.refuses(world_size)
