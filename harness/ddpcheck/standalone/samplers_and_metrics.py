"""Samplers, metrics and late ranks as plain calls."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from ..job import Aggregate, Job, ResumeSampling, Sample, Sleep
from .literals import text_literal
from .text import Text

_TELLING = 8
"""From this many samples on, two random orders are almost never equal."""


def sample(text: Text, position: int, op: Sample) -> None:
    text.use("make_sampler")
    text.judges = True
    words = f"{op.length}, shuffle={op.shuffle}, seed={op.seed}, drop_last={op.drop_last}"
    text.comment(position, f"a sampler of {op.length} samples")
    text.add(f"sampler = make_sampler({words})")
    current = 0
    for number, epoch in enumerate(op.epochs):
        name = f"shares_{position}_{number}"
        text.add(*_meanwhile(text, op, number, epoch))
        text.add(f"sampler.set_epoch({epoch})" if epoch is not None else "# once more, without set_epoch")
        text.add("mine = [int(index) for index in sampler]", 'expect("len(sampler)", len(sampler), len(mine))')
        current = current if epoch is None else epoch
        if _meanwhile(text, op, 1, epoch):
            text.add(
                f"undisturbed = make_sampler({words})",
                f"undisturbed.set_epoch({current})",
                'expect("as in a sampler that was only read", mine, [int(index) for index in undisturbed])',
            )
        text.add(f"{name} = from_all_ranks(mine)")
        if not op.shuffle and op.length % text.job.world_size == 0:
            text.add('expect("without shuffle the samples ascend", mine, sorted(mine))')
        text.add("if rank == 0:", *(f"    {line}" for line in _shared_out(text, op, name)))


def _meanwhile(text: Text, op: Sample, number: int, epoch: int | None) -> list[str]:
    """Disturbances between two readings, which must not affect the second."""
    lines = []
    if number and op.disturbed is not None:
        after = (op.disturbed + 1) % text.job.world_size
        lines += [
            "import random",
            f"if rank == {op.disturbed}:  # draws from the generators of the process; the next rank seeds its own",
            "    random.random(), np.random.random_sample()",
            f"if rank == {after}:",
            "    random.seed(rank), np.random.seed(rank)",
        ]
    if op.peeks:
        lines += [f"sampler.set_epoch({epoch})"] if epoch is not None else []
        lines.append(f"list(zip(range({list(op.peeks)}[rank]), sampler))  # begun, and broken off")
    if op.retold and epoch is not None:
        lines.append(f"sampler.set_epoch({epoch + 3})  # another epoch, which is not read")
    if op.beside:
        made = f"length, shuffle={op.shuffle}, seed=seed, drop_last={op.drop_last}"
        each = tuple((length, seed, (epoch or 0) + later) for length, seed, later in op.others())
        lines += [
            f"for length, seed, other_epoch in {each}:",
            f"    other = make_sampler({made})",
            "    other.set_epoch(other_epoch)",
            "    list(other)",
        ]
    return lines


def _shared_out(text: Text, op: Sample, shares: str) -> list[str]:
    world = text.job.world_size
    rule = "drop" if op.drop_last else text.capabilities.sampler.remainder
    low, high = op.length // world, -(-op.length // world)
    lines = [f'say(f"samples of all ranks: {{{shares}}}")'] if op.length <= 100 else []
    lines.append(f"together = sum({shares}, [])")
    if rule == "uneven":
        sizes = f"sorted(map(len, {shares})) == {[low] * (world - op.length % world) + [high] * (op.length % world)}"
        lines.append(f'expect("lengths differ by one at most", {sizes}, True)')
    else:
        size = low if rule == "drop" else high
        lines.append(f'expect("samples on each rank", [len(share) for share in {shares}], {[size] * world})')
    if rule == "pad":
        if op.length:
            lines.append(f'expect("every sample is there", sorted(set(together)), list(range({op.length})))')
    else:
        lines.append('expect("no sample appears twice", len(set(together)), len(together))')
        lines.append(
            f'expect("so many samples are there", len(together), {low * world if rule == "drop" else op.length})'
        )
    return lines


def resume_sampling(text: Text, position: int, op: ResumeSampling) -> None:
    text.use("make_sampler")
    text.judges = True
    made = f"make_sampler({op.length}, shuffle={op.shuffle}, seed={op.seed}, drop_last={op.drop_last})"
    text.comment(position, f"epoch {op.epoch} in pieces: each new sampler resumes from the previous one's state")
    before = [f"sampler.set_epoch({op.epoch + 1})", "list(sampler)  # an epoch before"] if op.used else []
    begun = (
        "first, reading = sampler, iter(())  # nothing is asked for" if op.used else "first = reading = iter(sampler)"
    )
    told = "" if op.then is None else f".set_epoch({op.then})"
    straight = op.then not in (None, op.epoch)
    more = "    " * op.at_once
    shown = "another reading" if op.then is None else f"epoch {op.then}"
    size = "len" if op.then is None and op.shuffle else "list"
    counts = f"{[0] * op.used} + [count + {op.ahead} * rank for count in {list(op.pieces)}]"
    text.add(
        f"sampler = {made}",
        *before,
        f"sampler.set_epoch({op.epoch})",
        begun,
        "from copy import deepcopy",
        "",
        "read = []",
        f"for count in {counts if op.ahead else list(op.counts(0))}:",
        "    read.append([int(index) for _, index in zip(range(count), reading)])",
        *(["    for _ in range(2):  # the loaded state is saved again at once"] if op.at_once else []),
        f"{more}    state = deepcopy(dict(sampler.state()))  # as from a file",
        f"{more}    sampler = {made}",
        f"{more}    sampler.load_state(state)",
        *([f"{more}    sampler.set_epoch({op.epoch})"] if op.told else []),
        "    reading = iter(sampler)",
        "read.append([int(index) for index in reading])",
        *([f"sampler{told}"] if told else []),
        "length, after = len(sampler), [int(index) for index in sampler]",
        *([f"sampler = {made}", "sampler.load_state(state)", f"sampler{told}"] if straight else []),
        *(["straight = [int(index) for index in sampler]"] if straight else []),
        f"uninterrupted = {made}",
        f"uninterrupted.set_epoch({op.epoch})",
        "whole = [int(index) for index in uninterrupted]",
        "rest = [int(index) for index in first]",
        *([f"uninterrupted{told}"] if told else []),
        *(['say(f"samples, piece by piece: {read}")'] if op.length <= 100 else []),
        f'expect("epoch {op.epoch} in pieces", sum(read, []), whole)',
        f'expect("epoch {op.epoch}, continued in the first sampler", rest, whole[len(read[0]):])',
        "other = [int(index) for index in uninterrupted]",
        f'expect("{shown} in the last sampler", {size}(after), {size}(other))',
        f'expect("len() before {shown}", length, len(after))',
        *([f'expect("{shown}, straight after the last state was loaded", straight, other)'] if straight else []),
    )


def compare_orders(text: Text) -> None:
    """Equal seed and epoch must give the same order, another seed or epoch another order."""
    reads = list(_reads(text.job))
    lines = []
    for (first, a, epoch_a), (second, b, epoch_b) in itertools.combinations(reads, 2):
        if (a.length, a.shuffle, a.drop_last) != (b.length, b.shuffle, b.drop_last):
            continue
        between = f"seed {a.seed} epoch {epoch_a}, and seed {b.seed} epoch {epoch_b}"
        if (a.seed, epoch_a) == (b.seed, epoch_b) or not a.shuffle:
            lines.append(f'expect("the same order: {between}", {first} == {second}, True)')
        elif not text.capabilities.sampler.shuffles or a.length < _TELLING:
            continue
        elif a.seed + epoch_a != b.seed + epoch_b or text.capabilities.sampler.distinct_streams:
            lines.append(f'expect("another order: {between}", {first} != {second}, True)')
            if text.job.world_size > 1 and a.seed == b.seed:
                sets = " != ".join(f"[set(share) for share in {shares}]" for shares in (first, second))
                lines.append(f'expect("samples change ranks: {between}", {sets}, True)')
    shuffled = [(name, op) for name, op, _ in reads if op.shuffle and op.length >= 4 * _TELLING]
    if shuffled and text.capabilities.sampler.shuffles:
        name = shuffled[0][0]
        lines += [
            f"falls = [sum(a > b for a, b in zip(share, share[1:])) for share in {name}]",
            f"some = any(1 < fall < len(share) - 2 for fall, share in zip(falls, {name}))",
            'expect("shuffled, and not only reversed or begun elsewhere", some, True)',
        ]
    if lines:
        text.add("", "if rank == 0:", *(f"    {line}" for line in lines))


def _reads(job: Job) -> Iterator[tuple[str, Sample, int]]:
    """The variable that holds an order, its operation, and its epoch."""
    for position, op in enumerate(job.operations):
        if isinstance(op, Sample):
            current = 0
            for number, epoch in enumerate(op.epochs):
                current = current if epoch is None else epoch
                yield f"shares_{position}_{number}", op, current


def aggregate(text: Text, position: int, op: Aggregate) -> None:
    text.use("aggregate_metrics")
    text.judges = True
    text.comment(position, "rank r holds means[r] as the mean over counts[r] samples")
    text.add(f"means, counts = {_numbers(op.values)}, {list(op.counts)}")
    given = ", ".join(f"{text_literal(name)}: {_times(place)}means[rank]" for place, name in enumerate(op.names))
    rank, strange = op.no_number or (None, None)
    text.add(f"given = {{{given}}}")
    if op.turned:
        text.add(
            "at = rank % len(given)  # each rank has its own order",
            "given = dict([*given.items()][at:] + [*given.items()][:at])",
        )
    if strange is not None:
        text.add(f"if rank == {rank}:", f'    given[{text_literal(strange)}] = float("nan")')
    text.add("got = aggregate_metrics(dict(given), counts[rank])")
    if not any(op.counts):
        text.add(
            'expect("no samples, no number", all(np.isnan(value) for value in got.values()), True)',
            *same(position, "sorted(got.items())"),
        )
        return
    text.add("there = [r for r, count in enumerate(counts) if count]  # ranks without samples take no part")
    text.add("want = float(np.average([means[r] for r in there], weights=[counts[r] for r in there]))")
    used = [value for value, count in zip(op.values, op.counts, strict=True) if count]
    exact = all(value == int(value) if math.isfinite(value) else True for value in used)
    whole = exact and math.log2(sum(op.counts)).is_integer()
    for place, name in enumerate(op.names):
        size = f"{_times(place)}1e-6 * max(map(abs, means))"
        within = "" if whole or not all(map(math.isfinite, used)) else f", within={size}"
        if name == strange:
            what = text_literal(f"{name} is no number")
            text.add(f"expect({what}, bool(np.isnan(got[{text_literal(name)}])), True)")
            continue
        what = text_literal(f"{name}, the mean over all samples")
        text.add(f"expect({what}, float(got[{text_literal(name)}]), {_times(place)}want{within})")
    text.add(*same(position, "sorted(got.items())"))


def _times(place: int) -> str:
    return f"{place + 1} * " if place else ""


def same(position: int, value: str) -> list[str]:
    return [
        f"everyone = from_all_ranks({value})",
        'expect("equal on all ranks", all(str(other) == str(everyone[0]) for other in everyone), True)',
    ]


def _numbers(values: tuple[float, ...]) -> str:
    return repr(list(values)).replace("nan", "np.nan").replace("inf", "np.inf")


def sleep(text: Text, position: int, op: Sleep) -> None:
    text.comment(position, f"rank {op.rank} is late")
    text.add(f"if rank == {op.rank}:", f"    time.sleep({op.seconds})")
