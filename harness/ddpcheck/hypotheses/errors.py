"""Causes of a Job that ended early on some rank, from the operations of the Job."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from ..causes import Cause, Kind, collectives, ranks
from ..causes import operations as causes
from ..job import (
    AllGather,
    AllReduce,
    Backward,
    Broadcast,
    Job,
    Layout,
    Operation,
    Predict,
    ReduceScatter,
    Sample,
    SendRecv,
    Sleep,
    Wait,
    ZeroGrad,
)
from ..trace import RankTrace, Trace

_OF_ANY_TRACE = {kind.id for kind in vars(ranks).values() if isinstance(kind, Kind)}
"""Causes that follow from the positions of the ranks, in any check."""
_OF_A_TENSOR = (AllReduce, Broadcast, AllGather, ReduceScatter)
_TOGETHER = ("backward", "all_reduce", "broadcast", "all_gather", "reduce_scatter", "barrier", "wait")

_OF_A_ROOT = re.compile(r"(?i)\b(invalid|bad|wrong|unknown|no) root\b|\broot\b.*\b(range|rank|group)\b")
"""Words of an error about a root outside the group."""
_OF_A_MESSAGE = re.compile(
    r"(?i)trunca|size|shape|bytes|length|frame|header|message|expected|match|unpack|broadcast together|too (large|small)"
)
"""Words of an error about another message than the expected one."""
_OF_TORCH = re.compile(r"gradient which is undefined, but still allreduced by DDP reducer")
"""Words by which torch reports an error in its DistributedDataParallel."""
_OF_TIME = re.compile(r"(?<!run)time")
"""Words of an error about a time limit, in lower case; "RuntimeError" contains "time", and is excluded."""


def causes_of_error(own: tuple[Cause, ...], culprit: RankTrace, job: Job, trace: Trace) -> tuple[Cause, ...]:
    """The likeliest causes of an error of the rank `culprit`. own: the causes that the check has found itself."""
    of_check = tuple(cause for cause in own if cause.id not in _OF_ANY_TRACE)
    return next(_causes(culprit, job, trace), (*of_check, *_apart(culprit, job, trace)))


def group_in_which_it_hangs(culprit: RankTrace, job: Job, trace: Trace) -> tuple[int, ...] | None:
    """The group of the hanging collective, if the group has only some ranks and all others do not hang."""
    group: tuple[int, ...] | None = getattr(_made(culprit, job), "group", None)
    stuck = {rank.rank for rank in trace.ranks if rank.outcome == "hung"}
    return group if group is not None and culprit.outcome == "hung" and stuck <= {*group} else None


def _made(culprit: RankTrace, job: Job) -> Operation:
    """The operation in which the rank failed, or for which it waited."""
    operation = _failed_in(culprit, job)
    return job.operations[operation.operation] if isinstance(operation, Wait) else operation


def _failed_in(culprit: RankTrace, job: Job) -> Operation:
    return job.operations[_position(culprit)]


def _position(culprit: RankTrace) -> int:
    assert culprit.last is not None
    return culprit.last.operation


def _causes(culprit: RankTrace, job: Job, trace: Trace) -> Iterator[tuple[Cause, ...]]:
    """Causes of its error, the likeliest first; causes in one tuple are alternatives."""
    operation, before = _failed_in(culprit, job), job.operations[: _position(culprit)]
    raised = culprit.outcome == "raised"
    if raised and _OF_TORCH.search(culprit.error):
        yield (causes.UNDEFINED_IN_TORCH(),)
    if culprit.outcome == "invalid":
        yield from _why_invalid(culprit, job)
    if isinstance(operation, Broadcast) and operation.group and _OF_A_ROOT.search(culprit.error):
        yield (causes.ROOT_NOT_FOUND(root=operation.root, group=operation.group),)
    if isinstance(operation, SendRecv) and raised:
        yield from _why_no_message(culprit, job)
    if _has_layout(operation, "varied") or (
        # otherwise one succeeded
        _has_layout(operation, "mixed") and not any(_has_layout(each, "mixed") for each in before)
    ):
        yield (collectives.LAYOUTS_DIFFER(),)
    if _is_empty(operation) and raised:
        yield (causes.EMPTY_ARRAY(), *_or_its_dtype(culprit, job))
    if isinstance(operation, _OF_A_TENSOR) and operation.tensor.shape == () and raised:
        yield (causes.ZERO_DIMENSIONS(), *_or_its_dtype(culprit, job))
    everywhere = all(rank.outcome == "raised" for rank in trace.ranks)
    missing = "ModuleNotFoundError" in culprit.error
    if isinstance(operation, Sample) and operation.length < job.world_size and everywhere and not missing:
        yield (causes.FEW_SAMPLES(),)
    if isinstance(operation, Backward):
        yield from _why_no_backward(operation, culprit, job)
    late = [earlier for earlier in before if isinstance(earlier, Sleep)]
    if late and raised and _OF_TIME.search(_last_line(culprit).lower()):
        yield (causes.GAVE_UP_WAITING(rank=culprit.rank, late=late[-1].rank, seconds=late[-1].seconds),)


def _apart(culprit: RankTrace, job: Job, trace: Trace) -> tuple[Cause, ...]:
    """The remaining causes for a rank that raised while others succeeded."""
    operation = _failed_in(culprit, job)
    through = _through(culprit, trace, getattr(operation, "group", None))
    if culprit.outcome != "raised" or operation.kind not in _TOGETHER or not through:
        return ()
    other_path = () if _OF_A_MESSAGE.search(_last_line(culprit)) else (causes.TAKES_ANOTHER_PATH,)
    return tuple(kind(ranks=through, rank=culprit.rank) for kind in (*other_path, causes.OTHER_MESSAGE_RECEIVED))


def _why_no_backward(operation: Backward, culprit: RankTrace, job: Job) -> Iterator[tuple[Cause, ...]]:
    raised = culprit.outcome == "raised"
    before = tuple(enumerate(job.operations[: _position(culprit)]))
    if raised and not operation.samples[culprit.rank]:
        yield (causes.NO_SAMPLES(rank=culprit.rank),)
    elif idle := tuple(rank for rank, samples in enumerate(operation.samples) if not samples):
        yield (causes.IDLE_RANK_SKIPS(ranks=idle),)
    for position, earlier in before:
        if isinstance(earlier, Predict) and 0 < sum(map(bool, earlier.samples)) < job.world_size:
            alone = tuple(rank for rank, samples in enumerate(earlier.samples) if samples)
            yield (causes.EVALUATION_COMMUNICATES(operation=position, ranks=alone),)
    if raised and (thrown_away := _window_thrown_away([earlier for _, earlier in before])):
        backward, cleared = thrown_away
        yield (causes.DROPPED_WINDOW_REMEMBERED(backward=backward, cleared=cleared),)
    for position, earlier in before:
        if isinstance(earlier, Backward) and len(set(earlier.branches)) > 1:
            yield (causes.MESSAGES_DIFFER_SINCE(operation=position),)
    if len(set(operation.branches)) > 1:
        yield (causes.UNUSED_LEFT_OUT(),)


def _why_no_message(culprit: RankTrace, job: Job) -> Iterator[tuple[Cause, ...]]:
    """Messages that a receiver may have got instead, if its error reports a mismatch."""
    said = [line for line in culprit.error.splitlines() if not line.startswith("  ")]
    sent = [each.pairs for each in job.operations if isinstance(each, SendRecv)]  # a sender may be ahead
    sources = tuple(sorted({source for pairs in sent for source, dest in pairs if dest == culprit.rank}))
    if sources and any(map(_OF_A_MESSAGE.search, said)):
        ignored = (causes.SOURCE_IGNORED(sources=sources),) if len(sources) > 1 else ()
        yield (*ignored, causes.MESSAGES_OUT_OF_ORDER())


def _why_invalid(culprit: RankTrace, job: Job) -> Iterator[tuple[Cause, ...]]:
    operation, form = _made(culprit, job), culprit.wrong_form
    if _is_empty(operation):
        yield (causes.EMPTY_ARRAY(),)
    if not isinstance(operation, _OF_A_TENSOR):
        return
    if operation.tensor.shape == ():
        yield (causes.ZERO_DIMENSIONS(),)
    if form is None:
        return
    if isinstance(operation, ReduceScatter) and operation.group and culprit.rank in operation.group and form.shape:
        position = operation.group.index(culprit.rank)
        if position != culprit.rank:
            yield (causes.BLOCK_OF_RANK(rank=culprit.rank, position=position),)
    for position, other in enumerate(job.operations):
        if not isinstance(other, AllReduce) or other.tensor.shape == operation.tensor.shape:
            continue
        if (other.tensor.dtype, other.tensor.shape) == (form.dtype, form.shape):
            yield (collectives.RESULTS_MIXED_UP(operation=position),)
    if form.dtype != form.right_dtype:
        yield (causes.NOT_CONVERTED_BACK(dtype=form.dtype, right_dtype=form.right_dtype),)
    elif form.shape != form.right_shape and math.prod(form.shape) == math.prod(form.right_shape):
        yield (causes.SHAPE_LOST(shape=form.shape, right_shape=form.right_shape),)


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


def _or_its_dtype(culprit: RankTrace, job: Job) -> tuple[Cause, ...]:
    """An explanation other than the shape: a dtype that no earlier operation had."""
    operation = _made(culprit, job)
    before = [each.tensor.dtype for each in job.operations[: _position(culprit)] if isinstance(each, _OF_A_TENSOR)]
    if not isinstance(operation, _OF_A_TENSOR) or not before or operation.tensor.dtype in before:
        return ()
    return (causes.NEW_DTYPE(dtype=operation.tensor.dtype),)


def _has_layout(operation: Operation, layout: Layout) -> bool:
    return isinstance(operation, _OF_A_TENSOR) and operation.tensor.layout == layout


def _is_empty(operation: Operation) -> bool:
    return isinstance(operation, _OF_A_TENSOR) and 0 in operation.tensor.shape


def _through(culprit: RankTrace, trace: Trace, group: Sequence[int] | None) -> tuple[int, ...]:
    """The ranks of this group that completed the operation in which the culprit failed."""
    at = _position(culprit)
    done = [rank for rank in trace.ranks if rank.outcome == "done" or (rank.last and rank.last.operation > at)]
    return tuple(rank.rank for rank in done if group is None or rank.rank in group)


def _last_line(culprit: RankTrace) -> str:
    return culprit.error.rpartition("\n")[2]
