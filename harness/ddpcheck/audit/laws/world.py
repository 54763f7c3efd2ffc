"""Laws of the world: the ranks find each other, call the same collectives, and end together."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

from ...causes import Cause
from ...causes.audit import world as causes
from ...counted_nouns import counted, ranks_named
from ..could_not_run import could_not_run
from ..event_journal import Event
from ..evidence import Evidence
from .call_sites import chain_of, where_calls_part, where_it_waits
from .law import LawVerdict, broken, held, not_judged
from .parting import condition_between, parting, shared_call_before

_ERROR = 160
_FAILED = ("raised", "exit")


def ranks_form_one_world(evidence: Evidence) -> LawVerdict:
    if evidence.ranks == 1:
        return not_judged("one rank is a world of its own")
    if not any(evidence.real.of(rank, "installed") for rank in range(evidence.ranks)):
        return not_judged("no rank came as far as the script")
    worlds = [events[-1] if events else None for events in evidence.each_rank("world")]
    if all(world is None or world["size"] == 1 for world in worlds):
        if not evidence.steps_seen and any(evidence.real.end(rank)["why"] in _FAILED for rank in range(evidence.ranks)):
            return not_judged("the script ended before it made a process group")
        if evidence.real.hung and not any(worlds):
            return not_judged("the ranks were ended while none had made a process group")
        if not any(evidence.real.of(rank, "step", "backward") for rank in range(evidence.ranks)):
            return not_judged("the script ended before it trained anything")
        return broken(f"no process group of {evidence.ranks} ranks was made", causes.WORLD_IS_ONE(ranks=evidence.ranks))
    for world in worlds:
        if world is not None and world["size"] != evidence.ranks:
            return broken(
                f"the process group has {world['size']} ranks, should have {evidence.ranks}",
                causes.WORLD_HAS_ANOTHER_SIZE(size=world["size"], ranks=evidence.ranks, line=world["line"]),
            )
    return held()


def ranks_call_the_same_collectives(evidence: Evidence) -> LawVerdict:
    """Collectives of the whole world, and forwards through wrappers, must have the same order on all ranks."""
    sequences = [[event for event in events if _counts(event, evidence)] for events in
                 evidence.each_rank("collective", "forward")]  # fmt: skip
    if not any(sequences):
        return not_judged("the script called no collective and no wrapper")
    paired = list(zip(*sequences, strict=False))
    for number, together in enumerate(paired):
        if len(set(map(_signature, together))) > 1:
            return _odd_one(evidence, paired[: number + 1])
    lengths = [len(sequence) for sequence in sequences]
    if len(set(lengths)) > 1 and _stopped(evidence) is None and not _uneven_batches(evidence):
        longest = max(range(evidence.ranks), key=lambda rank: lengths[rank])
        extra = sequences[longest][min(lengths)]
        if all(evidence.real.end(rank)["why"] == "finished" for rank in range(evidence.ranks)) or _is_eval(extra):
            ranks = tuple(rank for rank in range(evidence.ranks) if lengths[rank] > min(lengths))
            return broken(
                f"rank {longest} makes {lengths[longest]} calls, others make {min(lengths)}",
                _branch(evidence, extra, ranks),
            )
    return _backward_skipped(evidence) or held(f"{min(lengths)} calls compared")


def _backward_skipped(evidence: Evidence) -> LawVerdict | None:
    """The verdict, if one rank makes no backward after a forward through a wrapper, and others do."""
    if _uneven_batches(evidence) or _stopped(evidence) is not None:
        return None
    calls = [
        [
            event
            for event in events
            if _synchronises(event) or (event["kind"] == "collective" and _counts(event, evidence))
        ]
        for events in evidence.each_rank("forward", "backward", "collective")
    ]
    for place, together in enumerate(zip(*calls, strict=False)):
        kinds = [event["kind"] for event in together]
        if len(set(kinds)) == 1:
            continue
        ranks = tuple(rank for rank, kind in enumerate(kinds) if kind != "backward")
        backward = next((event for event in together if event["kind"] == "backward"), None)
        before = [calls[rank][place - 1] for rank in ranks] if place else []
        if backward is None or not before or any(not _synchronises(event) for event in before):
            return None
        if any(event["kind"] != "forward" for event in before):
            return None
        forward = before[0]
        condition = condition_between(evidence, forward, backward) or f"what follows the forward at {forward['line']}"
        return broken(
            f"{ranks_named(ranks)} {'makes' if len(ranks) == 1 else 'make'} no backward in step {forward['step']}",
            causes.BACKWARD_SKIPPED(ranks=ranks, step=forward["step"], line=backward["line"], condition=condition),
        )
    return None


def _synchronises(event: Event) -> bool:
    if event["kind"] == "forward":
        return bool(event["grad"] and event["sync"])
    return event["kind"] == "backward" and any(event["sync"]) and not event.get("again")


def _counts(event: Event, evidence: Evidence) -> bool:
    if event["kind"] == "forward":  # a forward sends buffers, or its backward sends gradients
        return bool(event["buffers"] or (event["grad"] and event["sync"]))
    return not event["point"] and event["group"] == evidence.ranks


def _signature(event: Event) -> tuple[object, ...]:
    if event["kind"] == "forward":
        return ("forward", event["wrapper"], event["grad"])
    whole = event["op"].endswith(("_object", "_object_list")) or event["op"] in ("all_gather", "gather", "scatter")
    return (event["op"], None if whole else str(event.get("shape")), event.get("dtype"), event.get("reduce"))


def _is_eval(event: Event) -> bool:
    return event["kind"] == "forward" and not event["grad"]


def _odd_one(evidence: Evidence, paired: list[tuple[Event, ...]]) -> LawVerdict:
    """The rank whose call the others do not make, or make later. The last of these calls is the first that shows. An earlier
    one is told if a rank made it alone, and it was paired with a call that every rank makes.
    """
    if _uneven_batches(evidence) or _stopped(evidence) is not None:
        return not_judged("the ranks take different numbers of steps")
    ranks = range(evidence.ranks)
    calls = Counter(
        (rank, chain_of(event))
        for rank, events in enumerate(evidence.each_rank("collective", "forward"))
        for event in events
    )
    everywhere = {chain for _, chain in calls if all(calls[rank, chain] for rank in ranks)}
    number, together = next(
        (
            (number, pair)
            for number, pair in enumerate(paired)
            if 0 < sum(chain_of(event) in everywhere for event in pair) < evidence.ranks
        ),
        (len(paired) - 1, paired[-1]),
    )
    found = [
        (event, tuple(rank for rank in ranks if calls[rank, chain_of(event)]))
        for event in together
        if len({calls[rank, chain_of(event)] for rank in ranks}) > 1
    ]
    found.sort(key=lambda pair: len(pair[1]))
    event, own = found[0] if found else (together[0], (0,))
    if len(own) == evidence.ranks:
        most = max(calls[rank, chain_of(event)] for rank in ranks)
        own = tuple(rank for rank in ranks if calls[rank, chain_of(event)] == most)
    chains = [chain_of(each) for each in together]
    lines = [where_calls_part(chain, chains[:rank] + chains[rank + 1 :]) for rank, chain in enumerate(chains)]
    shown = "; ".join(f"rank {rank}: {_named(together[rank])} at {line}" for rank, line in enumerate(lines))
    return broken(f"call {number} differs between ranks: {shown}", _branch(evidence, event, own))


def _branch(evidence: Evidence, event: Event, ranks: tuple[int, ...]) -> Cause:
    others = [events for rank, events in enumerate(evidence.each_rank("collective", "forward")) if rank not in ranks]
    line = where_calls_part(chain_of(event), (chain_of(each) for events in others for each in events))
    condition = condition_between(evidence, shared_call_before(evidence, event, ranks[0]), event)
    if not condition and (parted := _where_ranks_part(evidence)):
        return parted[0]
    condition = condition or f"the condition around {line}"
    return causes.COLLECTIVE_IN_RANK_BRANCH(operation=_named(event), ranks=ranks, line=line, condition=condition)


def _named(event: Event) -> str:
    return "the wrapper's forward" if event["kind"] == "forward" else str(event["op"])


def _uneven_batches(evidence: Evidence) -> bool:
    from .data import uneven_passes

    return uneven_passes(evidence) is not None


def _stopped(evidence: Evidence) -> tuple[tuple[int, ...], int] | None:
    """Ranks that took fewer steps than others and continued with something else."""
    counts = [len(evidence.real.of(rank, "step")) for rank in range(evidence.ranks)]
    begun = [len(evidence.real.of(rank, "backward", "epoch")) for rank in range(evidence.ranks)]
    if len(set(begun)) == 1 or _uneven_batches(evidence):
        return None
    fewest = min(begun)
    ranks = tuple(rank for rank in range(evidence.ranks) if begun[rank] == fewest)
    if any(evidence.real.end(rank)["why"] in _FAILED and counts[rank] == 0 for rank in ranks):
        return None
    if any(_waits_in(evidence, rank) not in ("", "barrier") for rank in ranks):
        return None
    passes = [_training_passes(evidence, rank) for rank in range(evidence.ranks)]
    if len(set(passes)) == 1:
        return None
    return ranks, counts[ranks[0]]


def _waits_in(evidence: Evidence, rank: int) -> str:
    """The collective that a rank entered and never left."""
    events = evidence.real.of(rank, "collective", "left")
    return str(events[-1]["op"]) if events and events[-1]["kind"] == "collective" else ""


def _training_passes(evidence: Evidence, rank: int) -> int:
    return sum(_trained(evidence, rank, event["loader"]) for event in evidence.real.of(rank, "epoch"))


def _trained(evidence: Evidence, rank: int, loader: int) -> bool:
    return any(event["loader"] == loader and event["grad"] for event in evidence.real.of(rank, "batch"))


def ranks_stop_together(evidence: Evidence) -> LawVerdict:
    found = _stopped(evidence)
    if found is None:
        return held()
    ranks, steps = found
    if raised := [rank for rank in ranks if _raised(evidence, rank)]:
        return not_judged(f"{ranks_named(raised)} raised an error")
    parted = parting(evidence)
    condition = parted.condition if parted is not None else "the condition that ends training"
    return broken(
        f"{ranks_named(ranks)} stopped after {counted(steps, 'step')}, the others went on",
        causes.STOP_DECIDED_PER_RANK(ranks=ranks, steps=steps, condition=condition),
    )


def _ways_part(evidence: Evidence) -> bool:
    """Whether another law tells that ranks make different calls."""
    laws = (ranks_stop_together, ranks_call_the_same_collectives)
    return _uneven_batches(evidence) or any(law(evidence).status == "broken" for law in laws)


def _raised(evidence: Evidence, rank: int) -> bool:
    """Whether the rank ended by an error of its own, and not because another rank was gone."""
    end = evidence.real.end(rank)
    return end["why"] == "raised" and not _from_a_peer(end["error"])


def ranks_end_without_error(evidence: Evidence) -> LawVerdict:
    """Judged last, because an error or a hang usually has one of the other causes. Ranks that wait for one another, or lose one
    another, since their ways have parted, have none of their own.
    """
    real, ranks = evidence.real, range(evidence.ranks)
    failed = [rank for rank in ranks if real.end(rank)["why"] in _FAILED]
    if (real.hung or failed) and all(_from_a_peer(real.end(rank)["error"]) for rank in failed) and _ways_part(evidence):
        return not_judged("the ranks do not go the same way, and end by that")
    if real.hung:
        waiting = tuple(rank for rank in ranks if real.end(rank)["why"] == "")
        lines = tuple(where_it_waits(evidence, rank) for rank in waiting)
        return broken(
            f"{ranks_named(waiting)} {'waits' if len(waiting) == 1 else 'wait'} for ever",
            *_where_ranks_part(evidence),
            causes.RANKS_WAIT(ranks=waiting, lines=lines),
            details=[stack for rank in waiting if (stack := real.stacks[rank] if rank < len(real.stacks) else "")],
        )
    if reason := could_not_run(evidence):
        return not_judged(f"the script {reason}")
    if failed:
        first = min(failed, key=lambda rank: (_from_a_peer(real.end(rank)["error"]), real.end(rank)["at"]))
        end = real.end(first)
        error = _short(end["error"])
        by_themselves = [rank for rank in failed if _raised(evidence, rank)] or failed
        # the output has the stack of a rank that the others left, if there is one
        output = [line for line in real.output.splitlines() if _first_line(end["error"]) not in line]
        return broken(
            f"rank {first} raised {error}",
            causes.SCRIPT_RAISED(ranks=tuple(by_themselves), kind=error.partition(":")[0], line=end["line"]),
            details=["\n".join(output)] if by_themselves == failed else [],
        )
    silent = [rank for rank in ranks if real.end(rank)["why"] == ""]
    if silent:
        return broken(f"rank {silent[0]} died without a message", details=[real.output])
    return held("all ranks ended" if real.end(0)["why"] == "finished" else "all ranks ran until they were stopped")


def _where_ranks_part(evidence: Evidence) -> tuple[Cause, ...]:
    parted = parting(evidence)
    return () if parted is None else (causes.RANKS_PART(**asdict(parted)),)


def _short(error: str) -> str:
    line = _first_line(error)
    return line if len(line) <= _ERROR else f"{line[:_ERROR]} ..."


def _first_line(error: str) -> str:
    return error.strip().partition("\n")[0]


def _from_a_peer(error: str) -> bool:
    return any(word in error for word in ("Connection closed by peer", "gloo", "NCCL", "Broken pipe", "reset by peer"))
