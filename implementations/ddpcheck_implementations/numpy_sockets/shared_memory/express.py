"""Express reductions, and barriers, among all ranks of a host: one exchange of small arrays in memory, prepared in plans.py.

Costs for N bytes per rank and W ranks: `a` is the latency, until the others see a rank's bytes; `c` and `r` are the seconds to
copy and to add up one byte:

    all_reduce      a + N c + (W - 1) N r
    reduce_scatter  a + N c + (W - 1) N / W r

Operation k uses half k % 2 of each rank's double buffer. A rank writes its elements there, then a word that names the
operation. It waits for the word of every other rank, and adds up the elements of all ranks in rank order; for a
reduce_scatter, only those of its own chunk.
No rank acknowledges: a rank that has written its word for operation k + 1 is done with k. So when a rank has seen those words
of all others, the half of operation k is free for k + 2.
"""

from __future__ import annotations

from ddpcheck.seeded_values import Array

from ..algorithms.choice import choose_algorithm
from ..connections.wire_format import HEADER_BYTES, OPERATION_BITS
from ..group import Group
from ..operation_order import OperationOrder
from .messages import ASLEEP, MessageBoard
from .pieces import divide
from .plans import EXPRESS_BYTES, ReductionPlan, ReductionPlans

_GLANCES = 200
"""Times that a rank looks for a word before it polls: a few microseconds."""


def express_reductions(
    board: MessageBoard, world: Group, order: OperationOrder, forced: str
) -> ExpressReductions | None:
    """Return express reductions; None if some ranks are on other hosts, or another algorithm is forced or better."""
    if len(board.buffers) < world.size:
        return None
    chosen = choose_algorithm("memory", world.size, forced)
    sizes = [size for size in (EXPRESS_BYTES >> shift for shift in range(16)) if chosen(size) == "express"]
    return ExpressReductions(board, world, order, sizes[0]) if sizes else None


class ExpressReductions:
    """Reductions of arrays of up to `limit` bytes among all ranks of `world`, which are those of this host."""

    def __init__(self, board: MessageBoard, world: Group, order: OperationOrder, limit: int) -> None:
        self._plans = ReductionPlans(board.buffers, board.place)
        self._board, self._world, self._order = board, world, order
        self._traffic = board.traffic
        self._words = board.buffers[board.place].words
        self._channels = list(board.channels.values())
        self._messages, self._header_bytes = len(self._channels), len(self._channels) * HEADER_BYTES
        self._half = 0
        self._first = board.place == 0
        self._glances = range(1 if board.oversubscribed else _GLANCES)
        self.limit = limit

    def reduce(self, operation: str, op: str, array: Array, mine: Array, target: Array) -> None:
        """Reduce the part `mine` of `array` into `target`, which may be `array`. All are empty for a barrier.

        Mismatch if another rank is in another operation, or a message is unread. The code of methods of other classes is
        repeated here: calls would take a third of the time.
        """
        plan = self._plans[operation, op, array.dtype, array.shape]
        order, world = self._order, self._world
        if order.background.last is not None or order.failure is not None:
            order.wait_until_idle()
        try:
            world.begun += 1
            half = self._half = 1 - self._half
            plan.own[half][...] = array
            self._exchange(half, world.begun << OPERATION_BITS | plan.operation)
            traffic = self._traffic
            traffic.messages += self._messages
            traffic.payload_bytes += plan.payload_bytes
            traffic.header_bytes += self._header_bytes
            self._add_up(plan, half, mine, target)
        except BaseException as error:
            order.fail(error)
            raise

    def _exchange(self, half: int, word: int) -> None:
        """Write this rank's word, and return when all other ranks have written theirs."""
        channels = self._channels
        for channel in channels:
            if channel.announced[channel.place] >= channel.ticket:
                self._board.refuse_unread(channel, word)
        self._words[half] = word
        for channel in channels:
            if channel.taken[ASLEEP]:
                channel.waker.wake()
        for channel in channels:
            words = channel.words
            for _ in self._glances:
                if words[half] == word:
                    break
            else:
                self._board.wait_for_word(channel, half, word)

    def _add_up(self, plan: ReductionPlan, half: int, mine: Array, target: Array) -> None:
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
        elif self._first:  # its own array need not be read again
            reduction(mine, second, out=target)
        else:
            reduction(first, mine, out=target)
        if plan.divisor > 1:
            divide(target, plan.divisor)
