"""Laws of the data: each sample is used, epochs have different orders, ranks have equal numbers of batches."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ...causes.audit import data as causes
from ...counted_nouns import counted
from ..event_journal import Event
from ..evidence import Evidence
from .law import LawVerdict, broken, held, not_judged
from .passes import (
    base_indices,
    disjoint,
    drawn_with_replacement,
    loader_of,
    sampler_states,
    skipped_batches,
    trained_loaders,
    trained_passes,
    training_passes,
)
from .shards import overlap


def every_sample_is_used(evidence: Evidence) -> LawVerdict:
    for loaders_of_ranks in evidence.aligned("loader"):
        if all(loader.get("splits") for loader in loaders_of_ranks):
            loader = loaders_of_ranks[0]
            return broken(
                f"the data set {loader['dataset']} knows its rank by {loader['splits']}, and its loader deals samples out, too",
                causes.SAMPLES_SPLIT_TWICE(attribute=loader["splits"], ranks=evidence.ranks, line=loader["line"]),
            )
    passes = training_passes(evidence)
    judged, told = 0, _skipped_by_all(evidence)
    for (key, passed), ranks in passes.items():
        if found := _dealt_out_in_loop(evidence, key, ranks):
            return found
        loaders = [loader_of(evidence, key, rank) for rank in range(evidence.ranks)]
        size = loaders[0].get("base_size")
        if not loaders[0] or size is None or loaders[0]["iterable"]:
            continue
        line = loaders[0]["line"]
        subsets: list[Any] = [loader.get("subset") for loader in loaders]
        if all(subset is not None for subset in subsets):
            if evidence.ranks > 1 and any(subset != subsets[0] for subset in subsets):
                if disjoint(subsets) and _sampler_deals_out(evidence, key):
                    return broken(
                        f"the ranks' parts have {', '.join(str(len(subset)) for subset in subsets)} samples, none in two of them",
                        causes.PART_SPLIT_AGAIN(ranks=evidence.ranks, line=line),
                    )
                every = _all_subsets(evidence, loaders[0]["base"], size)
                judged += 1
                missing = size - len(every)
                if missing >= evidence.ranks:  # fewer cannot be divided evenly
                    return broken(
                        f"{missing} of {size} samples are in no rank's part",
                        causes.SAMPLES_NEVER_USED(count=missing, size=size, line=line),
                    )
            continue
        used = _used(evidence, key, passed, ranks)
        if used is None:
            continue
        judged += 1
        tail = evidence.ranks * max(loaders[0]["batch_size"] or 1, 1)
        partly = drawn_with_replacement(evidence, ranks) or overlap(evidence, key, passed, ranks)
        if size - len(used) < tail or partly:
            continue
        others = [_used(evidence, *other, passes[other]) for other in passes if other[0] == key and other[1] != passed]
        dealt_out_twice = abs(len(used) * evidence.ranks - size) < tail
        if _chosen_anew(set(range(size)) - used, [each for each in others if each]) and not dealt_out_twice:
            told = told or f"the sampler chooses {len(used)} of {size} samples for pass {passed}"
            continue
        return broken(
            f"{size - len(used)} of {size} samples were given to no rank in pass {passed}",
            causes.SAMPLES_NEVER_USED(count=size - len(used), size=size, line=line),
        )
    return (
        held(f"{counted(judged, 'whole pass', 'whole passes')} looked at", observation=told)
        if judged
        else not_judged("no pass over a data set with indices ended")
    )


def _dealt_out_in_loop(evidence: Evidence, key: str, ranks: list[list[Event]]) -> LawVerdict | None:
    """Ranks that take batches of their own shards in turn: where all are given the same batches, that shares them out."""
    used = [[event["number"] for event in events] for events in ranks]
    if evidence.ranks == 1 or not _sampler_deals_out(evidence, key) or not all(used) or not disjoint(used):
        return None
    numbers = "; ".join(f"rank {rank}: {', '.join(map(str, own[:3]))}, ..." for rank, own in enumerate(used))
    return broken(
        f"each rank uses only some batches of its shard; {numbers}",
        causes.BATCHES_SPLIT_AGAIN(ranks=evidence.ranks, line=ranks[0][0]["line"]),
    )


def _sampler_deals_out(evidence: Evidence, key: str) -> bool:
    """Whether a sampler on each rank deals the samples out to all ranks."""
    return all(state and state["num_replicas"] == evidence.ranks for state in sampler_states(evidence, key))


def _skipped_by_all(evidence: Evidence) -> str:
    """What to tell of batches that the loop skips on each rank, as it would on one process."""
    skipped = set.intersection(*skipped_batches(evidence))
    if not skipped:
        return ""
    key, passed, _ = min(skipped)
    count = sum(place[:2] == (key, passed) for place in skipped)
    given = sum((e["key"], e["passed"]) == (key, passed) for e in evidence.real.of(0, "batch"))
    return f"no backward pass follows {count} of {given} batches of pass {passed}: the loop skips them"


def _used(evidence: Evidence, key: str, passed: int, ranks: list[list[Event]]) -> set[int] | None:
    """The samples of a pass; None if its end was not seen, or its indices are not known."""
    ends = [
        [e for e in evidence.real.of(rank, "epoch_end") if e["key"] == key and e["passed"] == passed]
        for rank in range(evidence.ranks)
    ]
    if not all(end and not end[0]["cut"] for end in ends) or any(e["indices"] is None for r in ranks for e in r):
        return None
    return set().union(*(base_indices(evidence, key, rank, events) for rank, events in enumerate(ranks)))


def _chosen_anew(left_out: set[int], others: list[set[int]]) -> bool:
    """Whether a sampler that leaves out these samples in one pass chooses others in the next, as one that balances classes does.
    If one pass was seen, samples that are left out of a choice are not all side by side.
    """
    if others:
        return any(left_out & used for used in others)
    return max(left_out) - min(left_out) + 1 > len(left_out)


def _all_subsets(evidence: Evidence, base: str, size: int) -> set[int]:
    return {
        place
        for rank in range(evidence.ranks)
        for loader in evidence.real.of(rank, "loader")
        if loader["base"] == base and loader["base_size"] == size and loader["subset"] is not None
        for place in loader["subset"]
    }


def epochs_have_orders_of_their_own(evidence: Evidence) -> LawVerdict:
    trained = trained_passes(evidence)
    several = False
    for key in sorted({key for key, _ in trained}):
        states = [
            e for e in evidence.real.of(0, "epoch")
            if e["key"] == key and e["distributed"] and (key, e["passed"]) in trained
        ]  # fmt: skip
        for first, second in pairwise(states):
            several = True
            a, b = first["distributed"], second["distributed"]
            if a["shuffle"] and a["epoch"] == b["epoch"] and a["seed"] == b["seed"]:
                line = loader_of(evidence, key).get("line", key)
                return broken(
                    f"passes {first['passed']} and {second['passed']} have the same order",
                    causes.SET_EPOCH_NOT_CALLED(
                        first=first["passed"], second=second["passed"], epoch=a["epoch"], line=line
                    ),
                )
    if several:
        return held()
    return not_judged("no training loader with a DistributedSampler was read twice")


def uneven_passes(evidence: Evidence) -> tuple[str, tuple[int, ...]] | None:
    """A training loader that reported or yielded different numbers of batches on the ranks."""
    for key in sorted(trained_loaders(evidence)):
        lengths = [loader_of(evidence, key, rank).get("batches") for rank in range(evidence.ranks)]
        known = tuple(length for length in lengths if length is not None)
        if len(known) == evidence.ranks and len(set(known)) > 1:
            return key, known
        ends = [[e for e in evidence.real.of(r, "epoch_end") if e["key"] == key] for r in range(evidence.ranks)]
        for together in zip(*ends, strict=False):
            counts = tuple(event["batches"] for event in together)
            if len(set(counts)) > 1 and not any(event["cut"] for event in together):
                return key, counts
    return None


def ranks_get_as_many_batches(evidence: Evidence) -> LawVerdict:
    if not trained_loaders(evidence):
        return not_judged("no training batch came from a DataLoader, or was marked")
    found = uneven_passes(evidence)
    if found is None:
        return held()
    key, counts = found
    return broken(
        f"the ranks get {', '.join(map(str, counts))} batches",
        causes.DIFFERENT_NUMBERS_OF_BATCHES(counts=counts, line=loader_of(evidence, key).get("line", key)),
    )
