"""The law that each rank reads a shard of its own: no sample goes to several ranks."""

from __future__ import annotations

from collections import Counter

from ...causes.audit import data as causes
from ...counted_nouns import counted
from ..event_journal import Event
from ..evidence import Evidence
from .law import LawVerdict, broken, held, not_judged
from .passes import base_indices, drawn_with_replacement, loader_of, sampler_states, training_passes

_WHOLE = ("RandomSampler", "SequentialSampler")
"""Samplers that yield every sample of their data set on each rank."""

_COMMON = 16
_COMMON_PART = 0.1
"""Fewer equal samples of several ranks may be so by chance."""


def ranks_read_different_shards(evidence: Evidence) -> LawVerdict:
    if evidence.ranks == 1:
        return not_judged("there is one rank")
    passes = training_passes(evidence)
    if not passes:
        return _alike(evidence) or not_judged("no training batch came from a DataLoader, or was marked")
    shared = ""
    for (key, passed), ranks in passes.items():
        together = list(zip(*ranks, strict=False))
        if groups := _shared_groups(together):
            shared = (
                shared or f"all ranks get the same {len(together)} batches in pass {passed}, each sample {groups} times"
            )
            continue
        loader = loader_of(evidence, key)
        found = _same_batches(evidence, key, passed, ranks)
        if found is None and (not loader or loader.get("iterable")):
            found = _overlap_of_streams(evidence, key, passed, ranks)
        elif found is None:
            found = _whole_on_each_rank(evidence, key, ranks) or overlap(evidence, key, passed, ranks)
        if found is not None:
            return found
    return held(f"{counted(len(passes), 'pass', 'passes')} looked at", observation=shared)


def _alike(evidence: Evidence) -> LawVerdict | None:
    """Ranks whose own gradients are equal, where batches are not known: different samples give different ones."""
    step = next((each.step for each in evidence.compared if each.alike), None)
    if step is None:
        return None
    line = next((event["line"] for event in evidence.real.of(0, "backward") if event["step"] == step), "")
    how = "Before the reduction, all ranks have the same gradient, which different samples do not give."
    return broken(f"the ranks' own gradients are equal in step {step}", causes.SAME_DATA(how=how, line=line))


def _same_batches(evidence: Evidence, key: str, passed: int, ranks: list[list[Event]]) -> LawVerdict | None:
    together = list(zip(*ranks, strict=False))
    if (
        not together
        or not ranks[0][0]["size"]
        or any(len({event["digest"] for event in each}) > 1 for each in together)
    ):
        return None
    line = _sampler_line(sampler_states(evidence, key)) or _line(evidence, key, ranks)
    return broken(
        f"all ranks get the same {len(together)} batches in pass {passed}",
        causes.SAME_DATA(how=_why_same(evidence, key), line=line),
    )


def _overlap_of_streams(evidence: Evidence, key: str, passed: int, ranks: list[list[Event]]) -> LawVerdict | None:
    """Of marked batches, and of iterable data sets: their samples have no indices."""
    loader, line = loader_of(evidence, key), _line(evidence, key, ranks)
    together = list(zip(*ranks, strict=False))
    alike = [each for each in together if _drawn_alike(each)]
    if len(alike) > 1:
        return broken(
            f"all ranks get the same batch {len(alike)} times in pass {passed}, of {len(together)}",
            causes.RANKS_DRAW_ALIKE(count=len(alike), size=len(together), line=line),
        )
    rows = [{row for event in events for row in event["rows"]} for events in ranks]
    common = set.intersection(*rows) if all(rows) else set()
    if common and len(common) > 0.5 * min(map(len, rows)) and not _rows_repeat(ranks):
        return broken(
            f"{len(common)} of {min(map(len, rows))} samples come to all ranks in pass {passed}",
            causes.SAME_DATA(how=_why_same(evidence, key), line=line),
        )
    if not loader or (found := _common_rows(ranks)) is None:
        return None
    count, size = found
    workers = f", and {loader['workers']} workers of each," if loader.get("workers") else ""
    how = _why_hashed(evidence) or (
        f"The data set is iterable. It must split its samples over {evidence.ranks} ranks{workers} itself, "
        "in an order that all ranks share."
    )
    return broken(
        f"{count} samples come to several ranks in pass {passed}",
        causes.SHARDS_OVERLAP(count=count, size=size, line=line, how=how),
    )


def _whole_on_each_rank(evidence: Evidence, key: str, ranks: list[list[Event]]) -> LawVerdict | None:
    loader = loader_of(evidence, key)
    if loader["sampler"] not in _WHOLE or loader["batch_sampler"] != "BatchSampler":
        return None
    if not _same_samples(evidence, key, ranks):
        return None
    return broken(
        f"each rank goes through the whole data set of {loader['size']} samples",
        causes.SAME_DATA(
            how=f"Its sampler is {loader['sampler']}, which knows no ranks: each goes through all samples.",
            line=_line(evidence, key, ranks),
        ),
    )


def overlap(evidence: Evidence, key: str, passed: int, ranks: list[list[Event]]) -> LawVerdict | None:
    """Samples that several ranks got, beyond the padding of a sampler."""
    loader = loader_of(evidence, key)
    if any(event["indices"] is None for events in ranks for event in events):
        return None
    used = [set(base_indices(evidence, key, rank, events)) for rank, events in enumerate(ranks)]
    common = set.union(*(used[a] & used[b] for a in range(len(used)) for b in range(a)))
    states = sampler_states(evidence, key)
    if loader.get("subset") is None and not any(states) and not _same_samples(evidence, key, ranks):
        return None
    if len(common) <= evidence.ranks:  # the last ones may be padding, so that all ranks have equal numbers
        return _overlap_of_contents(evidence, key, passed, ranks) if all(states) else None
    if drawn_with_replacement(evidence, ranks):
        return None
    how = _why_hashed(evidence) or (
        "The ranks' samplers choose samples that are not disjoint. A shuffle before the split needs one seed for all ranks."
    )
    seeds = tuple(state["seed"] for state in states if state and state["shuffle"])
    subsets = [loader_of(evidence, key, rank).get("subset") for rank in range(evidence.ranks)]
    headline = f"{len(common)} samples go to several ranks in pass {passed}"
    count, line = len(set.union(*used)), loader.get("line", key)
    if any(states) and any(subset != subsets[0] for subset in subsets):
        how = "Each rank split the data set in its own way, as random_split does without a common seed."
    elif len(set(seeds)) > 1:
        made = _sampler_line(states) or line
        return broken(headline, causes.SAMPLER_SEED_DIFFERS(seeds=seeds, count=len(common), size=count, line=made))
    return broken(headline, causes.SHARDS_OVERLAP(count=len(common), size=count, how=how, line=line))


def _overlap_of_contents(evidence: Evidence, key: str, passed: int, ranks: list[list[Event]]) -> LawVerdict | None:
    """Samples that several ranks got from data sets in different orders: their indices are disjoint, and say nothing."""
    loaders = [loader_of(evidence, key, rank) for rank in range(evidence.ranks)]
    contents = {loader.get("content", "") for loader in loaders}
    ordered = not all(state and state["shuffle"] for state in sampler_states(evidence, key))
    if len(contents) == 1 and (ordered or contents != {""}):  # a data set that has samples twice
        return None
    if (found := _common_rows(ranks)) is None or _side_by_side(ranks) > found[0] / 2:
        return None
    count, size = found
    return broken(
        f"{count} samples go to several ranks in pass {passed}, from different places of the ranks' data sets",
        causes.SHARDS_OVERLAP(
            count=count,
            size=size,
            line=loaders[0]["line"],
            how="The data set is not the same on all ranks: its order or its part was chosen without a common seed.",
        ),
    )


def _shared_groups(together: list[tuple[Event, ...]]) -> int:
    """How often each sample comes in a batch, if the ranks share its group, as where a policy answers each prompt several times.

    0 if a sample comes once, as samplers that know no ranks give it.
    """
    counts = {count for each in together for event in each for count in Counter(event["indices"] or [None]).values()}
    alike = all(len({event["digest"] for event in each}) == 1 for each in together)
    return counts.pop() if alike and len(counts) == 1 and counts != {1} else 0


def _drawn_alike(together: tuple[Event, ...]) -> bool:
    """Whether all ranks get one batch of different samples, in one order. Independent draws do not give that."""
    return len({event["digest"] for event in together}) == 1 and len(set(together[0]["rows"])) > 2


def _rows_repeat(ranks: list[list[Event]]) -> bool:
    """Whether a rank gets samples repeatedly within a pass, as random draws do: other ranks may get them, too."""
    rows = [row for event in ranks[0] for row in event["rows"]]
    return len(set(rows)) < 0.9 * len(rows)


def _common_rows(ranks: list[list[Event]]) -> tuple[int, int] | None:
    """The number of equal samples that come to several ranks, and of all samples, where no rank gets one twice.

    Samples drawn with replacement come twice to one rank, too, and may be common.
    """
    rows = [[row for event in events for row in event["rows"]] for events in ranks]
    unique = [set(own) for own in rows]
    if any(len(own) < len(every) for own, every in zip(unique, rows, strict=True)):
        return None
    common = set.union(*(unique[a] & unique[b] for a in range(len(unique)) for b in range(a)))
    if len(common) < _COMMON or len(common) <= _COMMON_PART * min(map(len, unique)):
        return None
    return len(common), len(set.union(*unique))


def _side_by_side(ranks: list[list[Event]]) -> int:
    """The number of samples that ranks get at the same place: not by a common data set, but by common random draws."""
    rows = [[row for event in events for row in event["rows"]] for events in ranks]
    return sum(len(set(together)) < len(together) for together in zip(*rows, strict=False))


def _same_samples(evidence: Evidence, key: str, ranks: list[list[Event]]) -> bool:
    """Whether the ranks' data sets hold the same samples: an index that two ranks used has the same content."""
    subsets = [loader_of(evidence, key, rank).get("subset") for rank in range(evidence.ranks)]
    if any(subset is not None for subset in subsets):
        return all(subset == subsets[0] for subset in subsets)
    content: list[dict[int, str]] = []
    for events in ranks:
        own: dict[int, str] = {}
        for event in events:
            if event["indices"] and event["rows"]:
                own.update(zip(event["indices"], event["rows"], strict=False))
        content.append(own)
    common = set(content[0]).intersection(*content[1:])
    return bool(common) and all(len({own[index] for own in content}) == 1 for index in common)


def _why_same(evidence: Evidence, key: str) -> str:
    loader = loader_of(evidence, key)
    if not loader:
        return "The marked batches of all ranks are equal."
    if loader.get("iterable"):
        workers = f"at most over its {loader['workers']} workers" if loader.get("workers") else "over nothing"
        return f"The data set is iterable and is split {workers}, not over ranks."
    states = [state for state in sampler_states(evidence, key) if state]
    if states:
        return f"The sampler is told that it is rank {states[0]['rank']} of {states[0]['num_replicas']} on every rank."
    return f"Its sampler is {loader.get('sampler', 'unknown')}, which knows no ranks, and all ranks shuffle alike."


def _why_hashed(evidence: Evidence) -> str:
    """The reason, if the script hashes strings, and PYTHONHASHSEED is not the same on all ranks; empty otherwise."""
    hashed = [event for events in evidence.each_rank("string_hash") for event in events]
    if not hashed or {event["seed"] for event in hashed} == {hashed[0]["seed"]} != {"random"}:
        return ""
    line = hashed[0]["line"]
    return f"hash() at {line} gives other numbers in each process, so that the ranks do not split alike."


def _sampler_line(states: list[Event | None]) -> str:
    """The line that made the DistributedSampler; empty if there is none, or if its line is not known."""
    return next((state.get("line", "") for state in states if state), "")


def _line(evidence: Evidence, key: str, ranks: list[list[Event]]) -> str:
    """The line that made the loader, or the line of the first marked batch."""
    made = loader_of(evidence, key).get("line")
    return str(made or next((event["line"] for events in ranks for event in events), key))
