"""Hypotheses about broadcasts and all-gathers: arrays at wrong positions, or not received."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from ...causes import collectives as causes
from ...job import AllGather, Broadcast
from ...seeded_values import poison_like
from ..arrays.evidence import WhatIf
from .evidence import WrongResult

_FEW = 4
"""For up to this many ranks every order, and every pair, is tried."""


def not_received(of: WrongResult) -> WhatIf:
    """The result of a broadcast has the values from before the call."""
    if not isinstance(of.collective, Broadcast):
        return
    root, poison = of.collective.root, poison_like(of.tensor.on(of.rank))
    if of.rank == root:
        yield (causes.ROOT_IS_A_RANK if of.place != root else causes.NON_ROOT_TAKES_PART)(), poison
    yield causes.BROADCAST_NOT_RECEIVED(), poison


def gathered_in_other_order(of: WrongResult) -> WhatIf:
    """The arrays in another order: for few ranks every order, for many the reverse; or one rank's array everywhere."""
    if not isinstance(of.collective, AllGather):
        return
    members, rows = of.members, of.parts
    orders = permutations(members) if len(members) <= _FEW else [members, members[::-1]]
    for order in list(orders)[1:]:
        yield causes.ROWS_IN_WRONG_ORDER(order=tuple(order)), np.stack([of.tensor.on(rank) for rank in order])
    for row, rank in permutations(range(len(members)), 2) if 2 < len(members) <= _FEW else ():
        wrong = np.stack([*rows[:row], rows[rank], *rows[row + 1 :]])
        yield causes.ROW_OF_OTHER_RANK(row=row, rank=members[rank], due=members[row]), wrong
    for rank in members[: _FEW * (len(members) > 1)]:
        yield causes.ONE_ROW_FOR_ALL(rank=rank), np.stack([of.tensor.on(rank)] * len(members))
