"""Hypotheses about ranks that fail, or compute wrong values, after a disturbed start, and not after a quiet one."""

from __future__ import annotations

from dataclasses import dataclass

from ..causes import Cause
from ..causes import rendezvous as causes
from ..job import Job, ShortReads, Start


@dataclass(frozen=True)
class DisturbedStart:
    """A Job that fails, whose ranks were started with a disturbance. completed: whether all ranks finished."""

    job: Job
    completed: bool

    @property
    def start(self) -> Start:
        return self.job.start or Start()


def short_read_taken_for_all(of: DisturbedStart) -> Cause | None:
    """Reads were cut short."""
    short = of.start.short_reads or any(isinstance(each, ShortReads) for each in of.job.operations)
    return causes.SHORT_READ_TAKEN_FOR_ALL() if short else None


def port_looked_up_free(of: DisturbedStart) -> Cause | None:
    """Every port that was looked up as free was taken at once."""
    return causes.PORT_LOOKED_UP_FREE() if of.start.taken_ports else None


def stranger_taken_for_rank(of: DisturbedStart) -> Cause | None:
    """Foreign clients connected."""
    return causes.STRANGER_TAKEN_FOR_RANK() if of.start.strangers else None


def old_world_left(of: DisturbedStart) -> tuple[Cause, ...]:
    """The world has the address of one that was killed. If its ranks arrived in another order, that may be the cause too."""
    if not of.start.in_place:
        return ()
    by_order = (rank_by_arrival(of) or early_rank_not_awaited(of),) if of.start.order else ()
    return (causes.OLD_WORLD_LEFT(), *by_order)


def name_shared_by_worlds(of: DisturbedStart) -> Cause | None:
    """Another world ran on this host."""
    return causes.NAME_SHARED_BY_WORLDS() if of.start.neighbour else None


def rank_by_arrival(of: DisturbedStart) -> Cause | None:
    """Ranks arrived in another order, and finished with wrong values."""
    return causes.RANK_BY_ARRIVAL(order=of.start.order) if of.completed else None


def early_rank_not_awaited(of: DisturbedStart) -> Cause:
    """Ranks arrived in another order, and one of them failed."""
    return causes.EARLY_RANK_NOT_AWAITED(order=of.start.order)
