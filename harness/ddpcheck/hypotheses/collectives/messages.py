"""Hypotheses about a received message: another message, or the right one misread."""

from __future__ import annotations

from dataclasses import dataclass

from ...causes import collectives as causes
from ...job import Job, SendRecv
from ...seeded_values import Array, poison_like, unreceived
from ..arrays.evidence import WhatIf


@dataclass(frozen=True, slots=True)
class WrongMessage:
    """The array that rank `dest` received from rank `source` in the operation at `position`."""

    job: Job
    operation: SendRecv
    position: int
    source: int
    dest: int

    @property
    def sent(self) -> Array:
        return self.operation.tensor.on(self.source)


def overwritten_before_sent(of: WrongMessage) -> WhatIf:
    if of.sent.dtype.name.startswith("float"):
        yield causes.READ_AFTER_RETURN(call="send()"), poison_like(of.sent)


def nothing_received(of: WrongMessage) -> WhatIf:
    yield causes.NOTHING_RECEIVED(), unreceived(of.sent)


def layout_of_message_ignored(of: WrongMessage) -> WhatIf:
    """Elements are sent, or stored, in the order of memory."""
    array, layout = of.sent, of.operation.tensor.layout_on
    if not array.ndim:
        return
    if layout(of.source) == "F":
        yield causes.SENT_BY_COLUMNS(), array.ravel(order="F").reshape(array.shape)
    if layout(of.dest) == "F":
        yield causes.RECEIVED_BY_ROWS(), array.ravel().reshape(array.shape, order="F")
    if "reversed" in (layout(of.source), layout(of.dest)):
        yield causes.REVERSED_IGNORED(), array[::-1]


def wrong_sender(of: WrongMessage) -> WhatIf:
    for rank in range(of.job.world_size):
        yield causes.WRONG_SENDER(rank=rank), of.operation.tensor.on(rank)


def overtaken(of: WrongMessage) -> WhatIf:
    """A message of another operation between the same ranks."""
    for place, other in enumerate(of.job.operations):
        if isinstance(other, SendRecv) and (of.source, of.dest) in other.pairs and place != of.position:
            yield causes.MESSAGES_OVERTAKE(rank=of.source, operation=place), other.tensor.on(of.source)
