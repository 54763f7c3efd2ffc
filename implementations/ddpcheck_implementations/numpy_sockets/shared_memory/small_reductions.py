"""Small reductions, and barriers, among all ranks of a host: one exchange in memory, with everything prepared (plans.py).

For N bytes per rank and W ranks; `a` is the time until the others see a rank's bytes, `c` and `r` are the times to
copy and to add up one byte:

    all_reduce      a + N c + (W - 1) N r
    reduce_scatter  a + N c + (W - 1) N / W r

Operation k goes through half k % 2 of each rank's memory. A rank writes its elements there, and then a word that says
which operation they are for. It waits for the word of every other rank, and adds all of them up in rank order, or of each
the elements that are for itself.
No rank has to say that it has read them: a rank that has written its word for operation k + 1 is done with k. So
when a rank has seen those words of all others, the half of operation k is free for k + 2.
"""

from __future__ import annotations

from ddpcheck.seeded_values import Array

from ..algorithms.choice import choice
from ..connections.wire_format import HEADER_BYTES, WHAT_BITS
from ..group import Group
from ..operation_order import Guard
from .messages import ASLEEP, Board
from .pieces import divide
from .plans import EXPRESS_BYTES, Plans

_GLANCES = 200
"""How often a rank looks for a word before it waits in earnest: a few microseconds."""


def express_of(board: Board, world: Group, guard: Guard, forced: str) -> Express | None:
    """None if it is not for these ranks, or another algorithm is forced."""
    if len(board.halves) < world.size:
        return None
    chosen = choice("memory", world.size, forced)
    sizes = [size for size in (EXPRESS_BYTES >> shift for shift in range(16)) if chosen(size) == "express"]
    return Express(board, world, guard, sizes[0]) if sizes else None


class Express:
    """`world` has all ranks of this host, and no others. For arrays of up to `limit` bytes."""

    def __init__(self, board: Board, world: Group, guard: Guard, limit: int) -> None:
        self._plans = Plans(board.halves, board.place)
        self._board, self._world, self._guard = board, world, guard
        self._traffic = board.traffic
        self._words = board.halves[board.place].words
        self._lines = list(board.lines.values())
        self._messages, self._header_bytes = len(self._lines), len(self._lines) * HEADER_BYTES
        self._half = 0
        self._first = board.place == 0
        self._glances = range(1 if board.crowded else _GLANCES)
        self.limit = limit

    def reduce(self, operation: str, op: str, array: Array, mine: Array, target: Array) -> None:
        """mine: the part of the array that goes into the target, which may be the array itself. Nothing for a barrier.

        Mismatch if another rank is at another operation, or a message is unread. What others call is written out here,
        since calls would take a third of the time.
        """
        plan = self._plans[operation, op, array.dtype, array.shape]
        guard, world, lines = self._guard, self._world, self._lines
        if guard.background.last is not None or guard.failure is not None:
            guard.settle()
        try:
            world.begun += 1
            word = world.begun << WHAT_BITS | plan.what
            half = self._half = 1 - self._half
            plan.own[half][...] = array
            for line in lines:
                if line.announced[line.place] >= line.ticket:
                    self._board.refuse_unread(line, word)
            self._words[half] = word
            for line in lines:
                if line.taken[ASLEEP]:
                    line.rope.pull()
            for line in lines:
                words = line.words
                for _ in self._glances:
                    if words[half] == word:
                        break
                else:
                    self._board.wait_for_word(line, half, word)
            traffic = self._traffic
            traffic.messages += self._messages
            traffic.payload_bytes += plan.payload_bytes
            traffic.header_bytes += self._header_bytes
            first, second, others = plan.blocks[half]
            reduction = plan.reduction
            if plan.single:  # NumPy takes three times as long to add a single number to another in place
                for other in others:
                    first, second = reduction(first, second), other
                reduction(first, second, out=target)
            elif others:
                reduction(first, second, out=target)
                for other in others:
                    reduction(target, other, out=target)
            elif self._first:  # its own array need not be read twice
                reduction(mine, second, out=target)
            else:
                reduction(first, mine, out=target)
            if plan.divisor > 1:
                divide(target, plan.divisor)
        except BaseException as error:
            guard.fail(error)
            raise
