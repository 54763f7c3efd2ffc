"""Laws of the data: shards are disjoint and complete, epochs have different orders, ranks have equal numbers of
batches.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

from ...causes.audit import data as causes
from ...counted_nouns import counted
from ..event_journal import Event
from ..evidence import Evidence
from .law import LawVerdict, broken, held, not_judged

_WHOLE = ("RandomSampler", "SequentialSampler")
"""Samplers that yield every sample of their data set on each rank."""

_COMMON = 16
_COMMON_PART = 0.1
"""Fewer equal samples of several ranks may be so by chance."""

Passes = dict[tuple[str, int], list[list[Event]]]


def training_passes(evidence: Evidence) -> Passes:
    """The training batches of each rank, by loader and pass."""
    found: Passes = defaultdict(lambda: [[] for _ in range(evidence.ranks)])
    trained = trained_loaders(evidence)
    for rank in range(evidence.ranks):
        for event in evidence.real.of(rank, "batch"):
            if event["grad"] and event["key"] in trained:
                found[event["key"], event["passed"]][rank].append(event)
    return dict(found)


def trained_loaders(evidence: Evidence) -> set[str]:
    """Loaders between whose batches there were backward passes."""
    return {key for key, _ in trained_passes(evidence)}


def trained_passes(evidence: Evidence) -> set[tuple[str, int]]:
    """Passes over loaders with a backward after a batch; not passes that only read the first batch."""
    found: set[tuple[str, int]] = set()
    last: tuple[str, int] | None = None
    for event in evidence.real.events[0]:
        if event["kind"] == "batch":
            last = (event["key"], event["passed"]) if event["grad"] else None
        elif event["kind"] == "backward" and last is not None:
            found.add(last)
    return found


def loader_of(evidence: Evidence, key: str, rank: int = 0) -> Event:
    return next((event for event in evidence.real.of(rank, "loader") if event["key"] == key), {})


def ranks_read_different_shards(evidence: Evidence) -> LawVerdict:
    if evidence.ranks == 1:
        return not_judged("there is one rank")
    passes = training_passes(evidence)
    if not passes:
        return not_judged("no training batch came from a DataLoader, or was marked")
    shared = ""
    for (key, passed), ranks in passes.items():
        loader = loader_of(evidence, key)
        line = loader.get("line") or next((event["line"] for events in ranks for event in events), key)
        together = list(zip(*ranks, strict=False))
        if groups := _shared_groups(together):
            shared = (
                shared or f"all ranks get the same {len(together)} batches in pass {passed}, each sample {groups} times"
            )
            continue
        if together and all(len({event["digest"] for event in each}) == 1 for each in together) and ranks[0][0]["size"]:
            made = _sampler_line(_samplers(evidence, key)) or line
            return broken(
                f"all ranks get the same {len(together)} batches in pass {passed}",
                causes.SAME_DATA(how=_why_same(evidence, key), line=made),
            )
        if not loader or loader.get("iterable"):
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
            if loader and (overlap := _common_rows(ranks)):
                count, size = overlap
                workers = f", and {loader['workers']} workers of each," if loader.get("workers") else ""
                return broken(
                    f"{count} samples come to several ranks in pass {passed}",
                    causes.SHARDS_OVERLAP(
                        count=count, size=size, line=line,
                        how=_why_hashed(evidence)
                        or f"The data set is iterable. It must split its samples over {evidence.ranks} ranks{workers} itself, "
                        "in an order that all ranks share.",
                    ),
                )  # fmt: skip
            continue
        if (
            loader["sampler"] in _WHOLE
            and loader["batch_sampler"] == "BatchSampler"
            and _same_samples(evidence, key, ranks)
        ):
            return broken(
                f"each rank goes through the whole data set of {loader['size']} samples",
                causes.SAME_DATA(
                    how=f"Its sampler is {loader['sampler']}, which knows no ranks: each goes through all samples.",
                    line=line,
                ),
            )
        found = _overlap(evidence, key, passed, ranks)
        if found is not None:
            return found
    return held(f"{counted(len(passes), 'pass', 'passes')} looked at", observation=shared)


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


def _why_same(evidence: Evidence, key: str) -> str:
    loader = loader_of(evidence, key)
    if not loader:
        return "The marked batches of all ranks are equal."
    if loader.get("iterable"):
        workers = f"at most over its {loader['workers']} workers" if loader.get("workers") else "over nothing"
        return f"The data set is iterable and is split {workers}, not over ranks."
    states = [state for state in _samplers(evidence, key) if state]
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


def _samplers(evidence: Evidence, key: str) -> list[Event | None]:
    """The DistributedSampler's state on each rank, at the first pass."""
    found: list[Event | None] = []
    for rank in range(evidence.ranks):
        event = next((event for event in evidence.real.of(rank, "epoch") if event["key"] == key), None)
        found.append(event["distributed"] if event else None)
    return found


def _sampler_line(states: list[Event | None]) -> str:
    """The line that made the DistributedSampler; empty if there is none, or if its line is not known."""
    return next((state.get("line", "") for state in states if state), "")


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


def _overlap(evidence: Evidence, key: str, passed: int, ranks: list[list[Event]]) -> LawVerdict | None:
    """Samples that several ranks got, beyond the padding of a sampler."""
    loader = loader_of(evidence, key)
    if any(event["indices"] is None for events in ranks for event in events):
        return None
    used = [set(base_indices(evidence, key, rank, events)) for rank, events in enumerate(ranks)]
    common = set.union(*(used[a] & used[b] for a in range(len(used)) for b in range(a)))
    states = _samplers(evidence, key)
    if loader.get("subset") is None and not any(states) and not _same_samples(evidence, key, ranks):
        return None
    if len(common) <= evidence.ranks:  # the last ones may be padding, so that all ranks have equal numbers
        return _overlap_of_contents(evidence, key, passed, ranks) if all(states) else None
    if _drawn_with_replacement(evidence, ranks):
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
    contents = {loader.get("content") for loader in loaders}
    ordered = not all(state and state["shuffle"] for state in _samplers(evidence, key))
    if len(contents) == 1 and (ordered or contents != {""}):  # a data set that has samples twice
        return None
    if (overlap := _common_rows(ranks)) is None:
        return None
    count, size = overlap
    return broken(
        f"{count} samples go to several ranks in pass {passed}, from different places of the ranks' data sets",
        causes.SHARDS_OVERLAP(
            count=count,
            size=size,
            line=loaders[0]["line"],
            how="The data set is not the same on all ranks: its order or its part was chosen without a common seed.",
        ),
    )


def _drawn_with_replacement(evidence: Evidence, ranks: list[list[Event]]) -> bool:
    """Whether a rank gets samples more than once in a pass, beyond padding: then ranks may get the same ones, and not all."""
    every = [[index for event in events for index in event["indices"] or ()] for events in ranks]
    return any(len(own) - len(set(own)) > evidence.ranks for own in every)


def base_indices(evidence: Evidence, key: str, rank: int, events: list[Event]) -> list[int]:
    """Indices into the data set below any Subset, in the order of the samples."""
    places = loader_of(evidence, key, rank).get("subset")
    indices = [index for event in events for index in event["indices"] or ()]
    return [places[index] for index in indices] if places is not None else indices


def every_sample_is_used(evidence: Evidence) -> LawVerdict:
    for loaders_of_ranks in evidence.aligned("loader"):
        if all(loader.get("splits") for loader in loaders_of_ranks):
            loader = loaders_of_ranks[0]
            return broken(
                f"the data set {loader['dataset']} knows its rank by {loader['splits']}, and its loader deals samples out, too",
                causes.SAMPLES_SPLIT_TWICE(attribute=loader["splits"], ranks=evidence.ranks, line=loader["line"]),
            )
    passes = training_passes(evidence)
    judged, chosen = 0, ""
    for (key, passed), ranks in passes.items():
        loaders = [loader_of(evidence, key, rank) for rank in range(evidence.ranks)]
        size = loaders[0].get("base_size")
        if not loaders[0] or size is None or loaders[0]["iterable"]:
            continue
        line = loaders[0]["line"]
        subsets = [loader.get("subset") for loader in loaders]
        if all(subset is not None for subset in subsets):
            if evidence.ranks > 1 and any(subset != subsets[0] for subset in subsets):
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
        partly = _drawn_with_replacement(evidence, ranks) or _overlap(evidence, key, passed, ranks)
        if size - len(used) < tail or partly:
            continue
        others = [_used(evidence, *other, passes[other]) for other in passes if other[0] == key and other[1] != passed]
        dealt_out_twice = abs(len(used) * evidence.ranks - size) < tail
        if _chosen_anew(set(range(size)) - used, [each for each in others if each]) and not dealt_out_twice:
            chosen = chosen or f"the sampler chooses {len(used)} of {size} samples for pass {passed}"
            continue
        return broken(
            f"{size - len(used)} of {size} samples were given to no rank in pass {passed}",
            causes.SAMPLES_NEVER_USED(count=size - len(used), size=size, line=line),
        )
    return (
        held(f"{counted(judged, 'whole pass', 'whole passes')} looked at", observation=chosen)
        if judged
        else not_judged("no pass ended")
    )


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
