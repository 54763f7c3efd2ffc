"""How to judge the numbers: method, environment, caveats, and the command to repeat them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ddpcheck.counted_nouns import counted

from .document import Block, Code, Heading, Table, Text
from .result_files import Measured, distinct

_FEW = 12


def caveats(measured: Measured) -> Iterator[Block]:
    """Warnings to the reader, derived from the numbers."""
    entries = measured.entries
    found = []
    if not all(e.linked for e in entries):
        found.append(
            "All ranks share one host: they communicate over memory or loopback, not a network; no latency or "
            "bandwidth here says anything about a cluster."
        )
    if any(e.linked for e in entries):
        found.append(
            "Emulated hosts share the cores, caches and kernel of one machine; their links have a rate, but neither "
            "the latency nor the losses of a network."
        )
    crowded = distinct([e for e in entries if e.crowded], lambda e: e.info["world_size"])
    if crowded:
        sizes = ", ".join(map(str, crowded))
        found.append(
            f"{sizes} ranks are more than the {entries[0].info['cores']} cores: such rows show function, not speed."
        )
    fewest = min((len(e.data) for e in entries if e.info["kind"] != "startup"), default=_FEW)
    if fewest < _FEW:
        found.append(
            f"Some points have {counted(fewest, 'launch', 'launches')}, less than {_FEW}: below 6 launches, brackets hold all "
            "of them instead of a 95 % interval."
        )
    apart = [
        e for e in entries if e.info.get("global_seconds", 0) > 1.05 * e.seconds and e.info["kind"] == "collective"
    ]
    if apart:
        found.append(
            f"In {len(apart)} of {len(measured.of('collective'))} collective points the ranks began more than 5 % of "
            "the time apart (the barrier before each iteration does not let all go at once): `global_seconds` in the "
            "result file is from the first begin to the last end."
        )
    busy = [run for run in measured.runs if run["load"]["loadavg_before"][0] > run["environment"]["cores"] / 2]
    if busy:
        found.append(f"The machine was busy with other work when {len(busy)} of {len(measured.runs)} runs began.")
    if any(run["environment"].get("governor") == "unknown" for run in measured.runs):
        found.append("This machine does not report the clock frequency of its cores, which may have changed.")
    found += [f"Not measured: {text}." for text in dict.fromkeys(measured.told("skipped"))]
    found += [f"Failed: {text}." for text in measured.told("problems")]
    yield Heading("Caveats")
    yield Text("\n".join(f"- {text}" for text in found))


def environment(measured: Measured) -> Iterator[Block]:
    yield Heading("Environment")
    for i, run in enumerate(measured.runs, start=1):
        here: dict[str, Any] = run["environment"]
        commit = run["commit"]
        rows = [
            ["machine", f"{here.get('cpu') or here['processor']}, {here['cores']} cores visible, {here['memory_gib']} GiB"
             + ", virtual" * bool(here.get("hypervisor"))],
            ["system", here["platform"]],
            ["Python", here["python"]],
            ["packages", ", ".join(f"{name} {version}" for name, version in here["packages"].items())],
            ["BLAS", f"{here.get('blas', 'unknown')}, one thread for each rank"],
            ["frequency", here.get("governor", "unknown")],
            ["commit", f"{commit.get('id', 'unknown')[:12]}{' and changes' * bool(commit.get('dirty'))}"],
            ["fingerprint", here.get("fingerprint", "-")],
        ]  # fmt: skip
        yield Table(("what", f"run {i}"), rows)


def method(measured: Measured) -> Iterator[Block]:
    yield Heading("How it was measured")
    yield Text(
        "Ranks measure time with the host's monotonic clock, after a barrier of the implementation. A sample is one "
        "iteration on the slowest rank; a launch (fresh processes) gives the median of its samples; a time in this "
        "report is the median over launches, with a nonparametric 95 % interval in brackets (all launches, if there "
        "are less than 6; or once, if there is one). Sizes up to 16 MiB are warmed up before any is measured, larger "
        "ones by two calls each; sizes follow in an order drawn anew in each launch, and launches of the "
        "implementations alternate. Operations below 5 µs are called several times to a sample. p95 is the median "
        "over launches, too, and the worst iteration that of all launches."
    )


def reproduce(measured: Measured, names: Sequence[str], out: str) -> Iterator[Block]:
    yield Heading("Reproduce")
    lines = [str(run["settings"].get("command", "")) for run in measured.runs]
    lines += [str(told.get("command", "")) for told in measured.projections]
    yield Code("\n".join([*lines, f"ddpcheck report {' '.join(names)} -o {out}"]), "console")
    yield Text("The last line repeats this report from the result files, without measuring.")
