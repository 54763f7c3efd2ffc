"""Hypotheses about collectives that are confused with other operations of the Job."""

from __future__ import annotations

import math

import numpy as np

from ...causes import collectives as causes
from ...job import AllReduce, TensorSpec
from ...oracle.collectives import Collective, finished, reduced, wants
from ...seeded_values import overwritten
from ..arrays.evidence import WhatIf
from .datatypes import FOLDS
from .evidence import WrongResult


def memory_shared(of: WrongResult) -> WhatIf:
    """The result was overwritten by the owner of another operation's result, or of another rank's.

    A rank's own result is recorded before its owner overwrites it, so only other ranks' results of this operation show.
    """
    for position in range(len(of.job.operations)):
        own = position == of.position
        cause = causes.RESULT_SENT_AFTER_RETURN() if own else causes.RESULTS_SHARE_MEMORY(operation=position)
        yield cause, overwritten(of.tensor.shape, of.tensor.dtype, position)


def operations_mixed_up(of: WrongResult) -> WhatIf:
    """Another operation's result, or arguments."""
    for position, made, ranks in finished(of.job):
        reducing = isinstance(of.collective, AllReduce) and isinstance(made, AllReduce)
        if made is not of.collective and of.members != ranks and of.all_reduce:
            yield from _of_another_group(of, made, position, ranks)
        if made is of.collective or of.rank not in ranks:
            continue
        if made.tensor.dtype == of.tensor.dtype:
            yield causes.RESULTS_MIXED_UP(operation=position), wants(made, ranks)[of.rank].value
            if reducing:
                yield from _paired_otherwise(of, made, position, ranks)
        elif reducing:
            yield from _as_other_bits(of.tensor, made, position, ranks)


def _paired_otherwise(of: WrongResult, made: Collective, position: int, ranks: tuple[int, ...]) -> WhatIf:
    """One rank's part of a sum comes from another sum."""
    sums = of.all_reduce == "sum" and isinstance(made, AllReduce) and made.reduction == "sum"
    if sums and of.tensor.shape == made.tensor.shape and of.members == ranks and len(ranks) > 1:
        total = np.asarray(reduced(of.tensor, "sum", ranks).value)
        for rank in ranks:
            cause = causes.PART_OF_OTHER_CALL(rank=rank, operation=position)
            yield cause, total - of.tensor.on(rank) + made.tensor.on(rank)


def _of_another_group(of: WrongResult, made: Collective, position: int, ranks: tuple[int, ...]) -> WhatIf:
    """The argument of a rank of both groups is used as its part of a sum here."""
    here, there = of.tensor, made.tensor
    fold = FOLDS.get(of.all_reduce)
    if fold is None or (there.shape, there.dtype) != (here.shape, here.dtype):
        return
    for rank in {*of.members} & {*ranks}:
        parts = [(there if each == rank else here).on(each) for each in of.members]
        cause = causes.PART_OF_OTHER_GROUP(rank=rank, operation=position, group=tuple(ranks))
        whole = fold.reduce(parts, axis=0, dtype=there.dtype)
        yield cause, np.asarray(whole / len(of.members) if of.all_reduce == "mean" else whole)


def _as_other_bits(tensor: TensorSpec, made: Collective, position: int, ranks: tuple[int, ...]) -> WhatIf:
    """Another result with as many bytes, read in this dtype."""
    want = wants(made, ranks)[ranks[0]]
    if want.bound is None and want.value.nbytes == math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize:
        cause = causes.RESULTS_MIXED_UP_AS_OTHER_DTYPE(operation=position, dtype=tensor.dtype)
        yield cause, np.frombuffer(want.value.tobytes(), tensor.dtype).reshape(tensor.shape)
