"""The assumptions and limits of a projection."""

from __future__ import annotations

from collections.abc import Sequence

from .projecting import Fit, Question
from .quantities import factor_text, percent, size_text, time_text
from .wording import FAR


def assumptions(question: Question, fits: Sequence[Fit]) -> list[str]:
    backward = percent(question.compute.backward / question.compute.total)
    lines = [
        "Every rank sends and receives one message at a time, both at once; links are alike and do not disturb each other.",
        f"Gradients are ready at an even pace during backward, which is {backward} of compute; one communication stream; "
        "the batch of a rank stays the same (weak scaling).",
        f"Communication runs {question.slowed_communication:g} x as long beside compute, and backward "
        f"{question.slowed_compute:g} x as long beside communication (--slowed-communication, --slowed-compute).",
    ]
    if question.link:
        lines.append(
            f"The link is yours, not measured: {time_text(question.link.alpha)} a message, {8e-9 / question.link.beta:.4g} "
            "Gbit/s. TCP in frames of 1500 bytes reaches 94 % of a link's nominal rate."
        )
        if fits:
            lines.append(
                "A message takes the software's time here plus the link's latency; a byte the time of copying and reducing "
                "here plus the link's time. An implementation that overlaps the two is faster."
            )
    return lines


def caveats(question: Question, fits: Sequence[Fit]) -> list[str]:
    of: dict[str, list[str]] = {}
    for found in fits:
        for line in _beyond_data(question, found):
            of.setdefault(line, []).append(found.series.title)
    lines = [f"{'; '.join(titles)}: {line}" for line, titles in of.items()]
    samples, most = len(question.compute.samples), max(question.ranks)
    if fits:
        lines.append(
            "Loopback is not a network: the effects of its buffers, caches and cores are in the measured part."
        )
    else:
        lines.append(
            "Nothing was measured: times of the link alone have no interval and no held-out error. Software adds to them."
        )
    if not samples:
        lines.append("No step times of one rank: the wait for the slowest rank is left out, and steps are optimistic.")
    elif most > samples:
        lines.append(
            f"The wait for the slowest rank comes from {samples} step times of one rank: too small for {most} ranks."
        )
    return lines


def _beyond_data(question: Question, found: Fit) -> list[str]:
    """The limits of the data of this series."""
    series, ranks = found.series, max(question.ranks)
    most, largest = series.world_sizes[-1], series.sizes[-1]
    cores = min(each.cores for each in series.measurements)
    lines = []
    if ranks > FAR * most:
        lines.append(
            f"{ranks} ranks are {factor_text(ranks / most)} the largest measured ({most}), and no error is known that far out: "
            "a scenario, not a prediction."
        )
    if question.model_bytes > largest:
        times = factor_text(question.model_bytes / largest)
        lines.append(f"{size_text(question.model_bytes)} is {times} the largest size measured ({size_text(largest)}).")
    if most > cores:
        lines.append(
            f"More ranks than cores were measured ({most} on {cores}): their mutual slow-down is part of the fit, "
            "and of its errors. On shared cores times show the work of all ranks together, which is equal for a ring and a "
            "root that gathers: the algorithm is a guess there. Name it by --algorithm."
        )
    if series.launches < 2:
        lines.append("One time each: intervals hold held-out errors only, no spread of launches.")
    if found.alternatives:
        few = "At 2 ranks all algorithms send equally: measure 3 or 4 as well, or say" if most == 2 else "Say"
        lines.append(
            f"Large messages fit {found.model.segments[-1].algorithm}, and as well {', '.join(found.alternatives)}, which need "
            f"other times with more ranks; the shortest and the longest are shown. {few} which it is by --algorithm."
        )
    if not found.scenarios:
        lines.append("Too few sizes and world sizes to hold any out: interval and error are unknown.")
    return lines
