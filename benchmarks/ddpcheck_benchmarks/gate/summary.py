"""The verdict as markdown for a pull request, and as one line for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ddpcheck.counted_nouns import counted
from ddpcheck.storage.markdown_table import markdown_table

from .decision import Decision, Look
from .record import Record, Stage
from .result import REGRESSION, UNUSABLE, WRONG, Result, Row
from .traffic import Tally

LONGEST = 60_000
"""Characters; a comment on GitHub may have 65,536."""

_SAYS = {
    "pass": "no slower",
    "fail": "SLOWER",
    "inconclusive": "undecided",
    "unconfirmed": "slower at first, not confirmed",
    "advisory": "slower, but the machine is too noisy to tell",
}
_METHOD = """\
A launch starts fresh ranks of both trees; they take turns in short bursts (A B, B A, B A, A B), so that what disturbs
the machine meets both. A burst's time is the lower quartile, over its iterations, of the slowest rank's time, or of 20
and more iterations the tenth percentile. A launch gives one value, the median of head / base over its pairs of bursts:
launches are independent, iterations are not. Bounds are those of the exact signed-rank test.

- SLOWER: after {looks} launches, whichever comes first, the bound from below at {alpha} lies above +{margin}; and it does
  again, at {alpha_confirm}, after {confirmations} fresh launches. A true slow-down of {margin} or less is failed with a
  probability of {false} at most before that.
- no slower: the bound from above at {alpha_pass} lies below +{ceiling}.
- undecided: neither, after {last} launches.
- After a failure head is compared with a second checkout of itself. If these two differ, failures are advice only.
- Bytes, messages and collectives are counted on every rank and have no noise: one more than before is a failure. Of TCP
  bytes, which the kernel counts if the adapter does not, an increase by more than 1 % is one."""


def headline(record: Record, result: Result, *, strict: bool = False, more_accepted: bool = False) -> str:
    """One line with the verdict and the compared revisions."""
    status = result.status(strict=strict, more_accepted=more_accepted)
    slower = [row.benchmark.name for row in result.rows if row.decision and row.decision.verdict == "fail"]
    more = [row.benchmark.name for row in result.rows if row.more]
    what = f"{record.adapter}, {record.world_size} ranks: "
    if status == WRONG:
        return what + f"WRONG results: {', '.join(row.benchmark.name for row in result.rows if row.wrong[1])}"
    if status == REGRESSION:
        parts = [f"slower: {', '.join(slower)}"] * bool(slower)
        parts += [f"more traffic: {', '.join(more)}"] * (bool(more) and not more_accepted)
        return f"{what}REGRESSION ({'; '.join(parts)})"
    if not any(row.compared for row in result.rows):
        counts = "neither the adapter nor the kernel counts the traffic"
        return f"{what}NOTHING COMPARED: times were not measured, and {counts}{_advice(record)}"
    undecided = [row.benchmark.name for row in result.rows if row.undecided]
    if undecided:
        said = "UNDECIDED" if status == UNUSABLE else "no regression shown; undecided"
        return f"{what}{said}: {', '.join(undecided)}{_first_slower(result)}{_advice(record)}"
    return what + "no regression"


def _first_slower(result: Result) -> str:
    """What was slower in the measurement, though not in the confirmation; empty if nothing was."""
    decisions = ((row.benchmark.name, row.decision) for row in result.rows)
    seen = [f"{name} {share(each.last.estimate)}" for name, each in decisions if each and each.verdict == "unconfirmed"]
    return f"; slower at first ({', '.join(seen)}), but not confirmed: run it again on an idle machine" if seen else ""


def _advice(record: Record) -> str:
    """The time that a verdict needs, if the measurement ended before its first look; empty otherwise."""
    if record.counts_only:
        return ""
    launches, needed = record.number_of_launches("measurement"), record.design.looks[0]
    if launches >= needed:
        return ""
    minutes = record.minutes_of("measurement", needed) if launches else 0
    time = f", here about {counted(minutes, 'minute')} (--minutes)" if minutes else ""
    return f"; {counted(launches, 'launch', 'launches')} so far, and a verdict takes {needed} or more{time}"


def markdown(record: Record, result: Result, *, strict: bool = False, more_accepted: bool = False) -> str:
    """The page, with the verdict first."""
    status = result.status(strict=strict, more_accepted=more_accepted)
    undecided = any(row.undecided for row in result.rows)
    alert = "WARNING" if status == UNUSABLE else "CAUTION" if status else "NOTE" if undecided else "TIP"
    base, head = record.places[:2]
    parts = [
        f"## ddpcheck gate: {headline(record, result, strict=strict, more_accepted=more_accepted)}",
        f"> [!{alert}]\n> {base.name} `{base.revision}`, {head.name} `{head.revision}`; {_spent(record)}",
        *_times(result),
        *_traffic(result),
        *_control(result),
        _details("How this is decided", _method(record)),
        _details("Environment", _environment(record)),
    ]
    text = "\n\n".join(parts) + "\n"
    return text if len(text) <= LONGEST else text[: LONGEST - 40].rpartition("\n")[0] + "\n\n(cut here: too long)\n"


def _spent(record: Record) -> str:
    verbs: dict[Stage, str] = {"measurement": "measure", "confirmation": "confirm", "control": "control"}
    counted = {verb: record.number_of_launches(stage) for stage, verb in verbs.items()}
    parts = [f"{count} launches to {verb}" for verb, count in counted.items() if count]
    return f"{', '.join(parts) or 'not timed'}; {record.seconds.get('total', 0):.0f} s"


def _times(result: Result) -> Iterator[str]:
    rows = [cells for row in result.rows for cells in _time_cells(row)]
    if not rows:
        return
    names = ("benchmark", "base, ms", "head, ms", "change, 99 % interval", "launches", "could find", "verdict")
    yield markdown_table(names, rows, right=range(1, 6))
    notes = [
        f"- {row.benchmark.name}: bimodal, inspect: head / base is {row.times.ratio:.2f} by a low quantile, "
        f"{row.times.ratios['median']:.2f} by the median, {row.times.ratios['mean']:.2f} by the mean, "
        f"{row.times.ratios['p95']:.2f} at the 95th percentile"
        for row in result.rows
        if row.times is not None and row.times.bimodal
    ]
    if notes:
        yield "\n".join(notes)


def said(decision: Decision) -> str:
    """The verdict in words."""
    return "faster" if decision.faster else _SAYS[decision.verdict]


def _time_cells(row: Row) -> Iterator[Sequence[str]]:
    times, decision = row.times, row.decision
    if times is None or decision is None:
        return
    last = decision.last
    yield (
        row.benchmark.name,
        milliseconds(times.base),
        milliseconds(times.head),
        change(last),
        str(decision.launches),
        share(math.log1p(decision.detectable)),
        said(decision) + " (by less than counts)" * decision.ignored,
    )


def _traffic(result: Result) -> Iterator[str]:
    rows = [(row.benchmark.name, row.benchmark.unit, tally) for row in result.rows for tally in row.tallies]
    seen = [entry for entry in rows if entry[2].base]
    if seen:
        names = ("benchmark", "counted", "base", "head", "least", "verdict")
        yield markdown_table(names, [tally_cells(*entry) for entry in seen], right=range(2, 5))
    silent = dict.fromkeys(name for name, _, tally in rows if not tally.base and tally.judged == "not counted")
    varying = dict.fromkeys(name for name, _, tally in rows if tally.judged == "varies")
    if silent:
        yield f"Traffic is not counted (the adapter hands out no `counts`, and sends nothing over TCP): {', '.join(silent)}."
    if varying:
        yield f"Traffic is not compared, since it differs from burst to burst: {', '.join(varying)}."


def tally_cells(benchmark: str, unit: str, tally: Tally) -> Sequence[str]:
    """Benchmark, what is counted, base, head, the least possible, and the verdict."""
    where, base, head = tally.compared
    said = tally.judged.upper() if tally.judged == "more" else tally.judged
    return (
        benchmark,
        f"{tally.name} per {unit}, {where}",
        f"{base:,}",
        f"{head:,}",
        "-" if tally.least is None else f"{tally.least:,.0f}",
        said + ", MORE than is promised" * tally.wasteful,
    )


def _control(result: Result) -> Iterator[str]:
    if not result.control:
        return
    said = "told apart, so that nothing can be said on this machine" if result.noisy else "not told apart"
    lines = [f"- {name}: {change(seen)} in {seen.launches} launches" for name, seen in result.control]
    yield "\n".join([f"Control, head against a second checkout of itself: {said}.", "", *lines])


def _method(record: Record) -> str:
    design = record.design
    return _METHOD.format(
        looks=" or ".join(map(str, design.looks)),
        last=design.looks[-1],
        alpha=f"{design.alpha_fail:.1%}",
        false=f"{design.alpha_fail * len(design.looks):.1%}",
        alpha_pass=f"{design.alpha_pass:.0%}",
        alpha_confirm=f"{design.alpha_confirm:.1%}",
        margin=f"{design.margin:.0%}",
        ceiling=f"{design.ceiling:.0%}",
        confirmations=" or ".join(map(str, design.confirmations)),
    )


def _environment(record: Record) -> str:
    here = record.environment
    lines = [
        f"- {here.cores} cores, {here.processor}, {here.platform}; load {record.load[0]:.1f} before, {record.load[1]:.1f} after",
        *(
            f"- {place.name} `{place.revision}`: Python {place.saw.get('python', '?')}, NumPy {place.saw.get('numpy', '?')}, "
            f"ddpcheck {place.saw.get('version', '?')}"
            for place in record.places
        ),
        f"- seed {record.seed}: `{record.command}`" if record.command else f"- seed {record.seed}",
    ]
    if record.world_size > here.cores:
        lines.append(f"- {record.world_size} ranks share {here.cores} cores: times are those of taking turns")
    return "\n".join(lines)


def _details(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def change(seen: Look) -> str:
    """A change with its 99 % interval; "not told apart" if the interval contains zero."""
    if not (math.isfinite(seen.low) and math.isfinite(seen.high)):
        return f"no interval yet: {seen.launches} launches are too few for 99 %"
    said = share(seen.estimate) if seen.told_apart else "not told apart"
    return f"{said} ({share(seen.low)} to {share(seen.high)})"


def share(log_ratio: float) -> str:
    """+3.1 % for ln 1.031."""
    return f"{100 * math.expm1(log_ratio):+.1f} %" if math.isfinite(log_ratio) else "?"


def milliseconds(seconds: float) -> str:
    """Three significant digits."""
    return f"{1000 * seconds:#.3g}".rstrip(".")
