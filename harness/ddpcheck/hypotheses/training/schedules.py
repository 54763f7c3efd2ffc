"""Learning rates that do not follow the plan's schedule, as factors by step."""

from __future__ import annotations

from functools import partial

from ...causes import Cause
from ...causes.training import schedules as causes
from ...job import Train
from .emulation_rules import Factor, law_factor


def wrong_factors(plan: Train, world_size: int, parameters: int) -> list[tuple[Cause, Factor]]:
    """Factors of the learning rate that differ from the plan's. parameters: the number of learned tensors."""
    right = partial(law_factor, plan)
    made: list[tuple[Cause, Factor]] = []
    if world_size > 1:
        made += [
            (causes.RATE_TIMES_WORLD_SIZE(world_size=world_size), lambda i, n: world_size * right(i, n)),
            (causes.RATE_OVER_WORLD_SIZE(world_size=world_size), lambda i, n: right(i, n) / world_size),
        ]
    made.append((causes.RATE_WARMS_UP(), lambda i, n: right(i, n) / (1 + (not i))))
    return made + _wrong_schedules(plan, world_size, parameters) * (plan.schedule == "linear")


def by_share_of_samples(*, uneven: bool) -> Cause:
    """The cause of rates that follow the share of samples used so far. uneven: that of a rank is its own."""
    return causes.RATE_BY_OWN_SAMPLES() if uneven else causes.SCHEDULE_BY_SAMPLES()


def _wrong_schedules(plan: Train, world_size: int, parameters: int) -> list[tuple[Cause, Factor]]:
    right, micro_batches, epochs = partial(law_factor, plan), plan.micro_batches, plan.epochs

    def faster(times: int) -> Factor:
        return lambda i, n: max(0.0, right(times * i, n))

    made: list[tuple[Cause, Factor]] = [
        (causes.SCHEDULE_IGNORED(), lambda i, n: 1.0),
        (causes.SCHEDULE_PER_EPOCH(), lambda i, n: right(i * epochs // n, epochs)),
        (causes.SCHEDULE_AHEAD(), lambda i, n: right(i + 1, n)),
        (causes.SCHEDULE_BEHIND(), lambda i, n: right(max(0, i - 1), n)),
        (causes.SCHEDULE_WITHOUT_SHORT_BATCHES(), lambda i, n: max(0.0, right(i, max(1, n - epochs)))),
        (causes.SCHEDULE_BELOW_ZERO(), lambda i, n: right(i, max(1, n - epochs))),
        (causes.SCHEDULE_SKIPS_SHORT_BATCHES(), lambda i, n: right(i - i // (n / epochs), n)),
        (causes.SCHEDULE_ENDS_EARLY(), lambda i, n: right(i, max(1, n - 1))),
        (causes.SCHEDULE_PER_PARAMETER(parameters=parameters), faster(parameters)),
    ]
    if world_size > 1:
        made += [
            (causes.SCHEDULE_PER_RANK(world_size=world_size), faster(world_size)),
            (causes.SCHEDULE_OF_WHOLE_DATA(world_size=world_size), lambda i, n: right(i, world_size * n)),
        ]
    if micro_batches > 1:
        made.append((causes.SCHEDULE_PER_MICRO_BATCH(), faster(micro_batches)))
        cause = causes.SCHEDULE_LENGTH_IN_MICRO_BATCHES()
        made += [(cause, partial(_counted_in_micro_batches, plan, missing)) for missing in range(micro_batches)]
    return made


def _counted_in_micro_batches(plan: Train, missing: int, step: float, steps: float) -> float:
    """missing: the number of micro-batches that the last window of each epoch lacks."""
    return law_factor(plan, step, plan.micro_batches * steps - missing * plan.epochs)
