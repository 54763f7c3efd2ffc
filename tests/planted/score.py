"""The score of planted faults: the first causes of a run, compared with the planted ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from ddpcheck.running.failure_causes import identity_of
from ddpcheck.running.failure_groups import group_failures
from ddpcheck.verdict import Verdict
from ddpcheck_implementations.faulty import Registered, faults


@dataclass(frozen=True)
class Combination:
    """Faults that were planted together: their names, their causes, and the failed verdicts.

    causes: those that the faults were registered with when the combination ran. told: the headlines by the rules of that
    time.
    """

    seed: int
    names: tuple[str, ...]
    causes: tuple[str, ...]
    failed: tuple[Verdict, ...]
    seconds: float
    told: tuple[str, ...] = ()

    @staticmethod
    def new(seed: int, faults: Sequence[Registered], failed: tuple[Verdict, ...], seconds: float) -> Combination:
        """A combination that has just run."""
        names, causes = tuple(each.name for each in faults), tuple(each.cause for each in faults)
        return Combination(seed, names, causes, failed, seconds, _headlines(failed))

    @property
    def headlines(self) -> tuple[str, ...]:
        """The ids of the causes in the run's order, by the present rules."""
        return _headlines(self.failed)

    @property
    def causes_now(self) -> tuple[str, ...]:
        """The causes that the faults are registered with."""
        return tuple(_registered().get(name, cause) for name, cause in zip(self.names, self.causes, strict=True))

    @property
    def right(self) -> bool:
        """Whether the first headlines, one per fault, are the planted causes, by the present rules."""
        return _are_first(self.causes_now, self.headlines)

    @property
    def alone(self) -> bool:
        """Whether there are no other headlines."""
        return self.right and len(self.headlines) == len(self.causes)

    @property
    def right_when_new(self) -> bool:
        return _are_first(self.causes, self.told)

    @property
    def alone_when_new(self) -> bool:
        return self.right_when_new and len(self.told) == len(self.causes)

    @property
    def shown(self) -> bool:
        """Whether some failure names each planted cause. Otherwise one fault hides another, as a hang hides later
        failures.
        """
        named = {cause.id for verdict in self.failed if verdict.diagnosis for cause in verdict.diagnosis.causes}
        return named.issuperset(self.causes_now)

    def line(self) -> str:
        mark = "=" if self.alone else "+" if self.right else "-"
        return f"{mark} {self.seconds:5.1f} s {' '.join(self.causes)} | {' '.join(self.headlines[:8])}"

    def to_plain(self) -> dict[str, Any]:
        """JSON."""
        failed = [{**each.to_plain(), "subject": each.diagnosis and each.diagnosis.subject} for each in self.failed]
        return {**vars(self), "failed": failed}

    @staticmethod
    def from_plain(data: Mapping[str, Any]) -> Combination:
        """Inverse of to_plain."""
        failed = tuple(map(_verdict, data["failed"]))
        named = tuple(data["names"]), tuple(data["causes"])
        return Combination(data["seed"], *named, failed, data["seconds"], tuple(data["told"]))


def _are_first(causes: tuple[str, ...], headlines: tuple[str, ...]) -> bool:
    return set(headlines[: len(causes)]) == set(causes)


@cache
def _registered() -> Mapping[str, str]:
    return {fault.name: fault.cause for fault in faults()}


def _headlines(failed: tuple[Verdict, ...]) -> tuple[str, ...]:
    """The ids of the causes in the run's order; a failure without a known cause is "?"."""
    return tuple("".join(identity_of(group.first)[:1]) or "?" for group in group_failures(failed))


def _verdict(data: Mapping[str, Any]) -> Verdict:
    """A verdict with the subject of its diagnosis, which result files omit."""
    subject = data["subject"]
    made = Verdict.from_plain({name: value for name, value in data.items() if name != "subject"})
    if subject is None or made.diagnosis is None:
        return made
    return replace(made, diagnosis=replace(made.diagnosis, subject=(subject[0], subject[1])))


HEAD = """\
# Planted faults

Does a run tell the causes first, if there are several? Registered faults are planted together, drawn by seed. A single fault
is any that is registered with a cause. Pairs and triples are replicas with faults of different modules, none of which leaves out
the calls of another. The quick profile judges each combination. A combination is right if the first headlines, one for each
fault, are the planted causes. It is right and alone if there is no other headline.

    python tests/planted/run.py planted.jsonl{seeds}
    python tests/planted/run.py tests/planted/results.jsonl{seeds} --page reports/planted-faults.md

| faults | combinations | told first when new | and no other headline | share | told first now | every cause is named somewhere |
| --- | --- | --- | --- | --- | --- | --- |
"""


def page(ones: Sequence[Combination], seeds: Sequence[int]) -> str:
    """The report in markdown."""
    rows, tables = [], []
    for together in sorted({len(one.causes) for one in ones}):
        these = [one for one in ones if len(one.causes) == together]
        right, alone = sum(one.right_when_new for one in these), sum(one.alone_when_new for one in these)
        now, shown = sum(one.right for one in these), sum(one.shown for one in these)
        share = alone if together == 1 else right
        counts = together, len(these), right, alone, f"{100 * share / len(these):.0f} %", now, shown
        rows.append(f"| {' | '.join(map(str, counts))} |")
        tables += [f"## Planted: {together}", "", "| planted | told when new | right |", "| --- | --- | --- |"]
        tables += [_row(one) for one in these]
        tables.append("")
    options = "".join(f" --seed {seed}" for seed in seeds)
    earlier = Path(__file__).with_name("earlier_draws.md").read_text(encoding="utf-8")
    return HEAD.format(seeds=options) + "\n".join([*rows, "", earlier, *tables]).rstrip() + "\n"


def _row(one: Combination) -> str:
    told, more = one.told[:6], len(one.told[6:])
    words = ", ".join(told) + f", and {more} more" * bool(more)
    right = "alone" if one.alone_when_new else "first" if one.right_when_new else "no; first now" if one.right else "no"
    return f"| {', '.join(one.causes)} | {words} | {right} |"
