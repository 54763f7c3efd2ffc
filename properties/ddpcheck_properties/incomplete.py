"""Why a Job may have come to an end on some rank before its end: what the operations say that the ranks were asked to do."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ddpcheck.causes import Cause, collectives, ranks
from ddpcheck.expect import why_stuck
from ddpcheck.job import (
    AllGather,
    AllReduce,
    Backward,
    Broadcast,
    Job,
    Operation,
    Predict,
    ReduceScatter,
    Sample,
    SendRecv,
    Sleep,
    Wait,
    ZeroGrad,
)
from ddpcheck.trace import RankTrace, Trace
from ddpcheck.verdict import Finding

_OF_A_TENSOR = (AllReduce, Broadcast, AllGather, ReduceScatter)
_TOGETHER = ("backward", "all_reduce", "broadcast", "all_gather", "reduce_scatter", "barrier", "wait")

_OF_A_ROOT = re.compile(r"(?i)\b(invalid|bad|wrong|unknown|no) root\b|\broot\b.*\b(range|rank|group)\b")
"""What an error says of a root that a group does not have."""
_ANOTHER_SHAPE = re.compile(r"returned \w+\[\d+[,\]]")
"""What an error says of a result that is an array, but not of the shape that it should have."""
_FORMS = re.compile(
    r"returned (?P<dtype>\w+)\[(?P<shape>[\d, ]*)\], but must return (?P<right_dtype>\w+)\[(?P<right_shape>[\d, ]*)\]"
)
_OF_A_MESSAGE = re.compile(
    r"(?i)trunca|size|shape|bytes|length|frame|header|message|expected|match|unpack|broadcast together|too (large|small)"
)
"""What an error says of a message that is not the one that was waited for."""
_OF_TIME = re.compile(r"(?<!run)time")
"""In lower case, what an error says of a time limit; every RuntimeError has the word in its name."""


def explained(finding: Finding, job: Job, trace: Trace) -> Finding:
    """The finding, of a Trace that did not complete, with the likeliest cause before any that it has; with none if there
    was no replica yet, as what the Job was to show did not begin.
    """
    if trace.first_failure is not None and trace.first_failure.without_replica:
        return finding.blaming()
    if finding.hung and (in_group := _hung_in_a_group(finding, job, trace)):
        finding = in_group
    cause = next(_causes(job, trace), None)
    if cause is None:
        return finding
    return finding.blaming(cause, *finding.diagnosis.causes)


def _hung_in_a_group(finding: Finding, job: Job, trace: Trace) -> Finding | None:
    """The finding by what the members of the group have done, if it hangs in a collective of one and all others do not."""
    culprit = trace.first_failure
    assert culprit is not None
    stuck = [rank for rank in trace.ranks if rank.outcome == "hung"]
    group = getattr(_made(culprit, job), "group", None)
    if group is None or not {rank.rank for rank in stuck} <= set(group):
        return None
    members = replace(trace, ranks=tuple(trace.ranks[rank] for rank in group))
    found = finding.diagnosis
    headline = found.headline.replace(" for more than", f" in group {list(group)} for more than", 1)
    causes = why_stuck(members, stuck)
    if len(group) == 1:
        causes = (ranks.GROUP_WAITS_WITHOUT_PEERS(),)
    return Finding(replace(found, headline=headline, causes=causes), hung=True)


def _made(culprit: RankTrace, job: Job) -> Operation | None:
    """The operation that the rank failed in, or the one that it waited for."""
    if culprit.last is None:
        return None
    operation = job.operations[culprit.last.operation]
    return job.operations[operation.operation] if isinstance(operation, Wait) else operation


def _causes(job: Job, trace: Trace) -> Iterator[Cause | str]:
    culprit = trace.first_failure
    if culprit is None or culprit.last is None or culprit.outcome == "died":
        return
    operation = job.operations[culprit.last.operation]
    if culprit.outcome == "invalid":
        yield from _why_invalid(culprit, job)
    if isinstance(operation, Broadcast) and operation.group and _OF_A_ROOT.search(culprit.error):
        yield (
            f"root {operation.root} is not found in group {list(operation.group)}: a transport counts from 0 in each group, or "
            "this is the communicator of another one"
        )
    if isinstance(operation, SendRecv) and culprit.outcome == "raised":
        yield from _why_no_message(culprit, job)
    if _is_mixed(operation) and not any(map(_is_mixed, job.operations[: culprit.last.operation])):  # else one went well
        yield collectives.LAYOUTS_DIFFER()
    if _is_empty(operation) and culprit.outcome == "raised":
        first = _or_its_dtype(culprit, job)
        yield f"the array has no elements{first}: the number of messages, or of rows, is not worked out for that"
    if isinstance(operation, _OF_A_TENSOR) and operation.tensor.shape == () and culprit.outcome == "raised":
        yield f"the array has no dimension{_or_its_dtype(culprit, job)}: there is no first one to be cut, or counted"
    everywhere = all(rank.outcome == "raised" for rank in trace.ranks)
    missing = "ModuleNotFoundError" in culprit.error
    if isinstance(operation, Sample) and operation.length < job.world_size and everywhere and not missing:
        yield (
            "fewer samples than ranks are not provided for; a sampler that refuses them, on every rank, promises "
            'few_samples="refused"'
        )
    if isinstance(operation, Backward):
        if culprit.outcome == "raised" and not operation.samples[culprit.rank]:
            yield "the rank has no samples: the forward or backward pass cannot do without any"
        elif idle := ", ".join(str(rank) for rank, samples in enumerate(operation.samples) if not samples):
            yield f"rank {idle} has no samples, and leaves out some of what the ranks do together, as the broadcast of buffers"
        for position, earlier in enumerate(job.operations[: culprit.last.operation]):
            if isinstance(earlier, Predict) and 0 < sum(map(bool, earlier.samples)) < job.world_size:
                alone = ", ".join(str(rank) for rank, samples in enumerate(earlier.samples) if samples)
                yield (
                    f"rank {alone} alone evaluated before (operation {position}): the forward of an evaluation communicates, and "
                    "its messages are taken for those of the training"
                )
        if culprit.outcome == "raised" and (
            thrown_away := _window_thrown_away(job.operations[: culprit.last.operation])
        ):
            yield (
                f"operation {thrown_away[0]} accumulated without synchronising, and operation {thrown_away[1]} threw that away: "
                "what was noted there, such as which parameters were used, still holds"
            )
        before = [
            position
            for position, earlier in enumerate(job.operations[: culprit.last.operation])
            if isinstance(earlier, Backward) and len(set(earlier.branches)) > 1
        ]
        if before:
            yield (
                f"the ranks' messages differ since operation {before[0]}, where they used different parameters: by orders or "
                "layouts that differ, gradients of different parameters are taken for one another"
            )
        if len(set(operation.branches)) > 1:
            yield (
                "the ranks use different parameters here, and do not send the same: a parameter without gradient is left out of "
                "the message, or has none of its own"
            )
    late = [earlier for earlier in job.operations[: culprit.last.operation] if isinstance(earlier, Sleep)]
    if late and culprit.outcome == "raised" and _OF_TIME.search(culprit.error.rpartition("\n")[2].lower()):
        yield (
            f"rank {culprit.rank} gave up waiting for rank {late[-1].rank}, which was only {late[-1].seconds:g} s late: a time "
            "limit of the implementation's own"
        )
    if (
        culprit.outcome == "raised"
        and operation.kind in _TOGETHER
        and (through := _through(culprit, trace, getattr(operation, "group", None)))
    ):
        own = "" if _OF_A_MESSAGE.search(culprit.error.rpartition("\n")[2]) else "goes another way there; or it "
        yield (
            f"rank {through} came through this operation, and rank {culprit.rank} did not: it {own}got a part of a message, or "
            "one of another call, as where a rank makes one call more or one less"
        )


def _why_no_message(culprit: RankTrace, job: Job) -> Iterator[str]:
    """What a receiver may have got in place of a message, where its error says that it does not fit."""
    said = [line for line in culprit.error.splitlines() if not line.startswith("  ")]
    assert culprit.last is not None
    sent = [each.pairs for each in job.operations[: culprit.last.operation + 1] if isinstance(each, SendRecv)]
    sources = sorted({source for pairs in sent for source, dest in pairs if dest == culprit.rank})
    if sources and any(map(_OF_A_MESSAGE.search, said)):
        overtaken = "messages overtake each other, or one was left behind"
        if len(sources) > 1:
            some = ", ".join(map(str, sources))
            overtaken = f"of the messages of rank {some} it takes what comes first, whoever sent it; or {overtaken}"
        yield overtaken


def _why_invalid(culprit: RankTrace, job: Job) -> Iterator[str]:
    assert culprit.last is not None
    operation = job.operations[culprit.last.operation]
    if isinstance(operation, Wait):
        operation = job.operations[operation.operation]
    if _is_empty(operation):
        yield "the array has no elements: its shape is lost, as the number of rows is not worked out for that"
    if not isinstance(operation, _OF_A_TENSOR):
        return
    if operation.tensor.shape == ():
        yield "the array has no dimension, and is taken for one of one dimension"
    if isinstance(operation, ReduceScatter) and operation.group and culprit.rank in operation.group:
        place = operation.group.index(culprit.rank)
        if place != culprit.rank and _ANOTHER_SHAPE.search(culprit.error):
            yield f"its block is that of its place in the group, {place}: it was cut out at the rank's own number, {culprit.rank}"
    for position, other in enumerate(job.operations):
        if isinstance(other, AllReduce) and other.tensor.shape != operation.tensor.shape:
            given = f"returned {other.tensor.dtype}{list(other.tensor.shape)},"
            if given in culprit.error:
                yield f"it has the shape of operation {position}: results are mixed up"
    yield from _why_of_another_form(culprit.error)


def _why_of_another_form(error: str) -> Iterator[str]:
    found = _FORMS.search(error)
    if found is None:
        return
    got, due = ([int(size) for size in found[name].split(", ") if size] for name in ("shape", "right_shape"))
    if found["dtype"] != found["right_dtype"]:
        yield f"it is computed in {found['dtype']}, and not made {found['right_dtype']} again"
    elif got != due and math.prod(got) == math.prod(due):
        yield "all elements are there, in another shape: it was lost on the way, or made anew from that of something else"


def _window_thrown_away(operations: Sequence[Operation]) -> tuple[int, int] | None:
    """The last backward that was never synchronised, and the zero_grad after it."""
    found = None
    accumulating: list[int] = []
    for position, operation in enumerate(operations):
        if isinstance(operation, Backward):
            accumulating = [] if operation.sync else [position]
        elif isinstance(operation, ZeroGrad):
            found = (accumulating.pop(), position) if accumulating else found
    return found


def _or_its_dtype(culprit: RankTrace, job: Job) -> str:
    """What may be at fault instead of a shape: a dtype that none of the operations before has had, while others have."""
    operation = _made(culprit, job)
    assert culprit.last is not None
    before = [each.tensor.dtype for each in job.operations[: culprit.last.operation] if isinstance(each, _OF_A_TENSOR)]
    dtype = operation.tensor.dtype if isinstance(operation, _OF_A_TENSOR) else ""
    return f", or the first of {dtype} is at fault, whatever its shape" * bool(before and dtype not in before)


def _is_mixed(operation: Operation) -> bool:
    return isinstance(operation, _OF_A_TENSOR) and operation.tensor.layout == "mixed"


def _is_empty(operation: Operation) -> bool:
    return isinstance(operation, _OF_A_TENSOR) and 0 in operation.tensor.shape


def _through(culprit: RankTrace, trace: Trace, group: Sequence[int] | None) -> str:
    """The ranks, of this group, that have done what the culprit failed in."""
    assert culprit.last is not None
    at = culprit.last.operation
    done = [rank for rank in trace.ranks if rank.outcome == "done" or (rank.last and rank.last.operation > at)]
    return ", ".join(str(rank.rank) for rank in done if group is None or rank.rank in group)
