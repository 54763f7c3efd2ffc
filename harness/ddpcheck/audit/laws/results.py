"""Laws of a run's reports and files: metrics count every rank's samples, and one rank writes each checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

from ...causes.audit import results as causes
from ..event_journal import Event
from ..evidence import Evidence
from .law import LawVerdict, broken, held, not_judged
from .passes import loader_of, trained_loaders

_REDUCTIONS = frozenset(
    {
        "all_reduce",
        "reduce",
        "all_gather",
        "all_gather_into_tensor",
        "all_gather_single",
        "all_gather_object",
        "gather",
        "gather_object",
    }
)


_NO_EVALUATION = "no loader was read to its end without gradients, as in an evaluation"
_LEAST = 1.5
"""A data set is read in parts if it has at least this many times the samples that one rank reads."""


def _evaluations(evidence: Evidence, rank: int) -> list[tuple[Event, int, list[Event]]]:
    """Each complete pass without gradients: its end, its samples, and the reductions before the next training batch or
    pass.
    """
    events = evidence.real.events[rank]
    trained = trained_loaders(evidence)
    found = []
    for place, event in enumerate(events):
        if event["kind"] != "epoch_end" or event["key"] in trained or event["cut"]:
            continue
        batches = [
            e for e in events[:place]
            if e["kind"] == "batch" and e["key"] == event["key"] and e["passed"] == event["passed"]
        ]  # fmt: skip
        if any(batch["grad"] for batch in batches) and evidence.real.of(rank, "backward") and _trains(events, batches):
            continue
        samples = sum(batch["size"] for batch in batches)
        during = events.index(batches[0]) if batches else place
        after = []
        for later in events[during:]:
            if later["kind"] == "collective" and later["op"] in _REDUCTIONS:
                after.append(later)
            if later["kind"] in ("backward", "step") or (later["kind"] == "epoch" and events.index(later) > place):
                break
        found.append((event, samples, after))
    return found


def _trains(events: tuple[Event, ...], batches: list[Event]) -> bool:
    return any(event["kind"] == "backward" and event["step"] == batches[0]["step"] for event in events if batches)


def means_weigh_ranks_by_their_samples(evidence: Evidence) -> LawVerdict:
    passes = [_evaluations(evidence, rank) for rank in range(evidence.ranks)]
    unclear = ""
    if not any(passes):
        return not_judged(_NO_EVALUATION)
    for together in zip(*passes, strict=False):
        counts = tuple(samples for _, samples, _ in together)
        reductions = together[0][2]
        if metric := next((event for event in reductions if event.get("metric")), None):
            cause = causes.METRIC_IS_NO_MEAN(metric=metric["metric"], line=metric["line"])
            return broken(f"{metric['metric']} of {', '.join(map(str, counts))} samples is averaged over ranks", cause)
        if own := _divided_by_own_count(together, counts):
            cause = causes.METRIC_DIVIDED_BY_OWN_COUNT(count=counts[0], total=sum(counts), line=own["line"])
            return broken(f"a sum over {sum(counts)} samples is divided by {counts[0]}", cause)
        if twice := _divided_twice(evidence, together, counts):
            line, divided = twice["line"], twice["before"][0]["line"]
            cause = causes.METRIC_DIVIDED_BY_ALL(line=line, divided=divided, ranks=evidence.ranks, count=counts[0])
            return broken(
                f"a sum over {counts[0]} samples of {sum(counts)} is divided by all, then by {evidence.ranks}", cause
            )
        if len(set(counts)) == 1:
            if averaged := _mean_of_own_means(together):
                return averaged
            continue
        reduced = [e for e in reductions if e["op"] in ("all_reduce", "reduce") and e["values"] and not _whole(e)]
        told = f"ranks with {', '.join(map(str, counts))} samples"
        if mean := next((event for event in reduced if event.get("averaged")), None):
            return broken(f"{told} are averaged", causes.METRIC_WITHOUT_COUNTS(line=mean["line"], counts=counts))
        totals = [e for e in reductions if e["values"] and any(_is_count(v, counts[0]) for v in e["values"])]
        if not reduced or totals:
            continue
        where = reduced[0]["line"]
        unclear = unclear or f"{told} are reduced at {where} without their counts: right for sums, wrong for means"
    return held(observation=unclear)


def _divided_by_own_count(together: Sequence[tuple[Event, int, list[Event]]], counts: tuple[int, ...]) -> Event | None:
    """The reduction to a sum over ranks that every rank divides by the number of its own samples."""
    every = zip(*(reductions for _, _, reductions in together), strict=False)
    return next(
        (
            events[0]
            for events in every
            if len(counts) > 1
            and events[0].get("reduce", "SUM") == "SUM"
            and all(
                count > 1 and count in event.get("divided_by", ()) for event, count in zip(events, counts, strict=True)
            )
        ),
        None,
    )


def _divided_twice(
    evidence: Evidence, together: Sequence[tuple[Event, int, list[Event]]], counts: tuple[int, ...]
) -> Event | None:
    """The mean over ranks of values that each rank has divided by the number of all ranks' samples, or of their batches. Values
    that are equal on all ranks may be reduced already.
    """
    size = loader_of(evidence, together[0][0]["key"]).get("size") or 0
    whole = {float(sum(counts))} | ({float(size)} if size > _LEAST * max(counts) else set())
    batches = float(sum(end.get("batches", 0) for end, _, _ in together))
    for events in zip(*(reductions for _, _, reductions in together), strict=False):
        divisors = [each for event in events for each in event.get("before", ())]
        apart = any(event["values"] != events[0]["values"] for event in events)
        by_all = all(each["by"] in whole or (each["world"] and each["by"] == batches) for each in divisors)
        if len(counts) > 1 and apart and divisors and by_all and all(event.get("before") for event in events):
            first: Event = events[0]
            return first
    return None


def _mean_of_own_means(together: Sequence[tuple[Event, int, list[Event]]]) -> LawVerdict | None:
    """The verdict on a mean over ranks of values that each rank has divided by a number of its own, such as its tokens."""
    for events in zip(*(reductions for _, _, reductions in together), strict=False):
        if not all(event.get("averaged") and event.get("before") for event in events):
            continue
        for divisors in zip(*(event["before"] for event in events), strict=False):
            numbers = tuple(each.get("number") or 0.0 for each in divisors)
            if len(set(numbers)) > 1 and all(number > 1 and number.is_integer() for number in numbers):
                counts, line = tuple(map(int, numbers)), events[0]["line"]
                cause = causes.MEAN_OF_OWN_MEANS(numbers=counts, line=line, divided=divisors[0]["line"])
                return broken(
                    f"values that the ranks have divided by {', '.join(map(str, counts))} are averaged", cause
                )
    return None


def _whole(event: Event) -> bool:
    """Whether all values are integers above 1, as counts are."""
    return all(float(value).is_integer() and abs(value) > 1 for value in event["values"])


def _is_count(value: float, samples: int) -> bool:
    return value == samples or (value > 1 and float(value).is_integer())


def metrics_are_combined(evidence: Evidence) -> LawVerdict:
    if evidence.ranks == 1:
        return not_judged("there is one rank")
    passes = [_evaluations(evidence, rank) for rank in range(evidence.ranks)]
    if not all(passes):
        return not_judged("not every rank reads a loader for an evaluation" if any(passes) else _NO_EVALUATION)
    for together in zip(*passes, strict=False):
        keys = {event["key"] for event, _, _ in together}
        key = next(iter(keys))
        sharded = any(
            event["distributed"] and event["distributed"]["num_replicas"] > 1
            for event in evidence.real.of(0, "epoch")
            if event["key"] == key
        )
        if sharded and not any(reductions for _, _, reductions in together):
            line = loader_of(evidence, key).get("line", key)
            return broken("each rank evaluates a shard, and no reduction follows", causes.METRIC_OF_ONE_RANK(line=line))
    return held(observation=_read_twice(evidence, list(zip(*passes, strict=False))))


def _read_twice(evidence: Evidence, passes: list[tuple[tuple[Event, int, list[Event]], ...]]) -> str:
    """A remark on evaluations that pad their last batches with samples of the beginning; empty if there are none.

    A sampler of torch adds fewer samples than there are ranks. Accelerate's gather_for_metrics leaves added ones out.
    """
    if any("gather_for_metrics" in event["mentions"] for event in evidence.real.of(0, "begin")):
        return ""
    for together in passes:
        event = together[0][0]
        size = loader_of(evidence, event["key"]).get("size")
        read = sum(samples for _, samples, _ in together)
        parts = all(samples < (size or 0) for _, samples, _ in together)
        if size and parts and read >= size + evidence.ranks:
            return f"an evaluation reads {read} samples of {size}: added ones count twice in a metric, unless they are left out"
    return ""


def one_rank_writes_each_checkpoint(evidence: Evidence) -> LawVerdict:
    writers: dict[str, dict[int, Event]] = {}
    for rank, events in enumerate(evidence.each_rank("save")):
        for event in events:
            if event["path"]:
                writers.setdefault(event["path"], {}).setdefault(rank, event)
    if not writers:
        in_memory = any(evidence.each_rank("save"))
        return not_judged("torch.save wrote to memory only" if in_memory else "no checkpoint was written by torch.save")
    for path, own in writers.items():
        if len(own) > 1:
            event = own[min(own)]
            name = path.rpartition("/")[2]
            return broken(
                f"{len(own)} ranks write {name}",
                causes.CHECKPOINT_BY_SEVERAL(ranks=tuple(sorted(own)), file=name, line=event["line"]),
            )
    return held()


def checkpoints_fit_the_bare_model(evidence: Evidence) -> LawVerdict:
    saves = [event for events in evidence.each_rank("save") for event in events]
    if not saves:
        return not_judged("no checkpoint was written by torch.save")
    prefixed = next((event for event in saves if event["prefix"]), None)
    for events in evidence.each_rank("loaded"):
        for event in events:
            if event["prefix"] and event["missing"]:
                line = prefixed["line"] if prefixed is not None else event["line"]
                return broken(
                    f"the model at {event['line']} found none of {event['missing']} names in the checkpoint",
                    causes.CHECKPOINT_PREFIX(line=line),
                )
    if prefixed is not None:
        return held(observation="names in the checkpoint begin with `module.`: it fits the wrapped model only")
    return held()
