"""The scaling report: the content of result files of `ddpcheck bench`, verdict first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ddpcheck.counted_nouns import counted

from .collective_section import collectives
from .document import Alert, Block, Heading, Table, Text
from .hosts_section import hosts
from .noise_section import noise
from .number_formatting import bytes_named, significant, with_spread
from .projection_section import projections
from .resource_section import resources, stragglers, timelines
from .result_files import Entry, Measured, distinct
from .step_section import alone, buckets, shown_efficiency, steps
from .told_apart import told_apart
from .trust_section import caveats, environment, method, reproduce


def blocks(measured: Measured, plots: Path, names: Sequence[str], out: str) -> list[Block]:
    """The whole report. Figures are written into `plots`; names and out are files, for the command that repeats the
    report.
    """
    return [
        Heading("Speed and scaling", 1),
        *_verdict(measured),
        *_at_a_glance(measured),
        *_pages_beside(plots.parent),
        *method(measured),
        *steps(measured, plots),
        *buckets(measured, plots),
        *collectives(measured, plots),
        *hosts(measured, plots),
        *_consistency(measured),
        *resources(measured, plots),
        *timelines(measured, plots),
        *stragglers(measured),
        *projections(measured),
        *noise(measured, plots),
        *caveats(measured),
        *environment(measured),
        *reproduce(measured, names, out),
    ]


def _verdict(measured: Measured) -> Iterator[Block]:
    collectives = [e for e in measured.entries if e.info["kind"] == "collective"]
    wrong = [e for e in collectives if e.info["wrong"]]
    problems, rules = measured.told("problems"), measured.told("consistency")
    violated = sum(rule["verdict"] == "violated" for rule in rules)
    minutes = counted(round(sum(run["load"]["seconds"] for run in measured.runs) / 60), "minute")
    implementations = ", ".join(distinct(measured.entries, lambda e: e.info["adapter"]))
    starts = len(measured.of("startup")) + len(measured.of("startup", linked=True))
    points = len(measured.entries) - starts
    told = (
        f"{counted(points, 'point')} and {counted(starts, 'start-up')} of {implementations}, measured in {minutes}. "
        f"{len(rules)} self-consistency rules judged, {violated} violated."
    )
    if wrong:
        names = ", ".join(f"`{e.name}` ({e.info['wrong']})" for e in wrong[:5])
        yield Alert(
            "CAUTION",
            f"**Wrong elements** in {len(wrong)} of {len(collectives)} points: {names}.\n{told}",
        )
    elif problems:
        yield Alert(
            "WARNING", f"**{len(problems)} points could not be measured**; all others gave exact results.\n{told}"
        )
    elif not collectives:
        yield Alert("NOTE", f"**No collective was measured**, so no result was checked here.\n{told}")
    else:
        yield Alert("NOTE", f"**Every collective gave exact results** before and after it was timed.\n{told}")


def _at_a_glance(measured: Measured) -> Iterator[Block]:
    """One row for each implementation, at the largest world size with a core for each rank."""
    several = [e for e in measured.entries if e.info["world_size"] > 1 and not e.crowded and not e.linked]
    if not several:
        return
    ranks = max(e.info["world_size"] for e in several)
    own = [e for e in several if e.info["world_size"] == ranks]
    reduces = [e for e in own if e.info.get("collective") == "all_reduce" and not e.info["in_place"]]
    sizes = distinct(reduces, lambda e: e.info["bytes"])
    trained = [e for e in own if e.info["kind"] == "step" and e.info["scaling"] == "weak" and not e.info["options"]]
    model = max(trained, key=lambda e: int(e.info["parameters"])).info["model"] if trained else ""
    rows = []
    for adapter in distinct(own, lambda e: e.info["adapter"]):
        cells = [adapter]
        if sizes:
            small, large = (_one(reduces, adapter=adapter, bytes=size) for size in (sizes[0], sizes[-1]))
            cells += [
                with_spread(small.data, 1e6) if small else "-",
                with_spread(_busbw_of_launches(large)) if large else "-",
            ]
        if model:
            step, base = _one(trained, adapter=adapter, model=model), _base(measured, adapter, model)
            cells += [
                with_spread(step.data, 1e3) if step else "-",
                with_spread(base.data, 1e3) if base else "-",
            ]
            cells.append(shown_efficiency(step, measured.of("step"), "weak") if step else "-")
        rows.append(cells)
    names = ["implementation"]
    if sizes:
        names += [f"all_reduce {bytes_named(sizes[0])} (µs)", f"busbw {bytes_named(sizes[-1])} (GB/s)"]
    names += [f"step of {model} (ms)", "at one rank (ms)", "weak efficiency"] if model else []
    yield Table(names, rows, f"At {ranks} ranks, the most that have a core each:")
    if words := told_apart(
        f"Step of {model}", {e.info["adapter"]: e.data for e in trained if e.info["model"] == model}
    ):
        yield Text(words)


def _busbw_of_launches(entry: Entry) -> list[float]:
    return [entry.info["busbw"] * entry.seconds / seconds for seconds in entry.data]


def _pages_beside(folder: Path) -> Iterator[Block]:
    """A line that links the pages about correctness, if they are in this folder."""
    if (folder / "conformance.md").exists() and (folder / "kill-matrix.md").exists():
        yield Text(
            "Two other pages show correctness: [conformance](conformance.md), and the [kill matrix](kill-matrix.md) of "
            "the checks."
        )


def _one(entries: Sequence[Entry], **wanted: Any) -> Entry | None:
    return next((e for e in entries if all(e.info[key] == value for key, value in wanted.items())), None)


def _base(measured: Measured, adapter: str, model: str) -> Entry | None:
    return _one([e for e in measured.of("step") if alone(e) and not e.info["options"]], adapter=adapter, model=model)


def _consistency(measured: Measured) -> Iterator[Block]:
    rules = measured.told("consistency")
    if not rules:
        return
    yield Heading("Self-consistency")
    yield Text(
        "Each implementation is compared with itself: a collective should not be slower than its other collectives "
        "with the same effect, nor than itself with more bytes, nor than itself in parts. A rule is violated if the "
        "difference over launches is significant (one-sided rank sum, 5 %) and larger than a barrier takes. At that "
        "level about one in twenty of the rules whose sides are equal is flagged by chance."
    )
    counted = []
    for place in sorted({(rule["adapter"], rule["world_size"]) for rule in rules}):
        own = [rule["verdict"] for rule in rules if (rule["adapter"], rule["world_size"]) == place]
        counted.append(
            [place[0], str(place[1]), *(str(own.count(v)) for v in ("holds", "violated", "too few launches"))]
        )
    yield Table(("implementation", "ranks", "hold", "violated", "too few launches to tell"), counted)
    broken = sorted((r for r in rules if r["verdict"] == "violated"), key=lambda r: -r["left"] / r["right"])
    if broken:
        rows = [_broken(rule) for rule in broken]
        yield Table(("implementation", "ranks", "violated rule", "size", "is (µs)", "should be (µs)", "by", "p"), rows)


def _broken(rule: dict[str, Any]) -> list[str]:
    return [
        rule["adapter"],
        str(rule["world_size"]),
        rule["rule"].replace("<=", "≤"),
        bytes_named(rule["bytes"]),
        significant(rule["left"] * 1e6),
        significant(rule["right"] * 1e6),
        f"x {rule['left'] / rule['right']:.2f}",
        f"{rule['p']:.3f}",
    ]
