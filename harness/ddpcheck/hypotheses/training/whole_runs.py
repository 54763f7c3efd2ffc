"""Hypotheses about all steps of a training run."""

from __future__ import annotations

from dataclasses import replace

from ...causes import Cause, training
from ...job import Train
from .emulation_rules import Rules
from .schedules import by_share_of_samples, wrong_factors

Candidates = list[tuple[Cause, Rules]]
"""Causes, the likeliest first, each with the rules of a run with this cause."""


def wrong_rules(
    plan: Train, world_size: int, parameters: int, *, terms: bool = False, uneven: bool = False
) -> Candidates:
    """Hypotheses for such a run.

    parameters: the number of trainable tensors. terms: the loss has auxiliary terms. uneven: ranks have different
    numbers of samples.
    """
    windows, several = plan.micro_batches > 1, world_size > 1
    made = [*_WINDOWS, *_FIRST_SYNCHRONISED * several] * windows
    made += [(cause, Rules(factor=factor)) for cause, factor in wrong_factors(plan, world_size, parameters)]
    made += _schedules(plan, uneven) * (plan.schedule == "linear")
    if several:
        made += _RANKS
        made.append((training.steps.GRADIENTS_DIVIDED_AGAIN(world_size=world_size), Rules(times=1 / world_size)))
        made.append((training.steps.GRADIENTS_SUMMED_OVER_RANKS(world_size=world_size), Rules(times=world_size)))
    made += _EPOCHS + _OPTIMIZERS + _TERMS * terms
    made += [each for each in _TAKEN_AGAIN if windows or each[1].again == "last"]
    if several and plan.batch_size > 1:
        made.append((training.steps.BATCH_SIZE_OF_ALL_RANKS(), Rules(batch_size=max(1, plan.batch_size // world_size))))
    return made + _clipping(plan)


def _schedules(plan: Train, uneven: bool) -> Candidates:
    by_samples = by_share_of_samples(uneven=uneven)
    made = [(by_samples, Rules(by_samples=True)), (training.schedules.RATE_IN_MOMENTUM(), Rules(rate_in_momentum=True))]
    if plan.micro_batches > 1:
        made += [(training.schedules.SCHEDULE_PER_MICRO_BATCH(), Rules(by_micro_batches=more)) for more in (0, -1)]
    return made


def _clipping(plan: Train) -> Candidates:
    if plan.max_norm is None:
        return [(training.steps.CLIPPED_UNASKED(), Rules(norm=1.0))]
    number = plan.micro_batches
    times = [(training.steps.MAX_NORM_TIMES_MICRO_BATCHES(number=number), Rules(clip_times=number))] * (number > 1)
    return [
        *_CLIPPING,
        *times,
        (training.steps.MAX_NORM_DOUBLED(), Rules(clip_times=2.0)),
        (training.steps.MAX_NORM_HALVED(), Rules(clip_times=0.5)),
    ]


_WINDOWS = [
    (training.steps.MICRO_BATCHES_WEIGH_EQUALLY(), Rules(weights="equal")),
    (training.steps.MICRO_BATCHES_SUMMED(), Rules(weights="sum")),
    (training.steps.SHORT_WINDOW_DIVIDED_AS_FULL(), Rules(weights="full")),
    (training.steps.SHORT_WINDOW_DROPPED(), Rules(tail="dropped")),
    (training.steps.SHORT_WINDOW_LEAKS(), Rules(tail="leaks")),
    (training.steps.LAST_WINDOW_SPLIT(), Rules(tail="apart")),
    (training.steps.STEP_PER_MICRO_BATCH(), Rules(tail="singly")),
    (training.steps.LAST_MICRO_BATCH_ONLY(), Rules(weights="last")),
    (training.steps.MICRO_BATCHES_COUNTED_ON(), Rules(tail="counted")),
]
_FIRST_SYNCHRONISED = [(training.steps.FIRST_MICRO_BATCH_SYNCHRONISED(), Rules(synced="first"))]
_RANKS = [
    (training.steps.WEIGHED_BY_SIZE(), Rules(ranks="by size")),
    (training.steps.WEIGHED_EQUALLY(), Rules(ranks="equal")),
]
_EPOCHS = [
    (training.steps.SHORT_BATCH_DROPPED(), Rules(short="dropped")),
    (training.steps.SHORT_BATCH_DIVIDED_AS_FULL(), Rules(short="full")),
    (training.steps.SINGLE_SAMPLE_BATCH_IGNORED(), Rules(short="single")),
    (training.steps.OPTIMIZER_PER_EPOCH(), Rules(anew=True)),
    (training.steps.GRADIENTS_KEPT_BETWEEN_EPOCHS(), Rules(kept=True)),
    *((training.steps.BUFFER_REFILLED(later=later), Rules(ahead=later)) for later in (1, 2, 3, 4)),
]
_OPTIMIZERS = [
    (training.steps.DECAY_MISSING(), Rules(optimizer={"weight_decay": 0.0})),
    (training.steps.MOMENTUM_ABSENT(), Rules(optimizer={"momentum": 0.0})),
    (training.steps.DECAY_DECOUPLED(), Rules(decay="apart")),
    (training.steps.DECAY_AT_FIRST_RATE(), Rules(decay="unscheduled")),
]
_TERMS = [
    (training.steps.TERMS_MISSING(), Rules(terms="none")),
    (training.steps.TERMS_PER_MICRO_BATCH(), Rules(terms="each")),
    (training.steps.TERMS_PER_RANK(), Rules(terms="ranks")),
]
_TAKEN_AGAIN = [
    (cause, replace(rules, again_counts=counts))
    for cause, rules in (
        # if last windows are full, both give the same end: a loop that takes every last step twice also fails elsewhere
        (training.steps.EMPTY_WINDOW_STEPS(), Rules(again="full")),
        (training.steps.EMPTY_WINDOW_STEPS_WITH_ZEROS(), Rules(again="full", again_with="zeros")),
        (training.steps.STEP_TAKEN_TWICE(), Rules(again="last")),
        (training.steps.STEP_TAKEN_TWICE_WITH_ZEROS(), Rules(again="last", again_with="zeros")),
    )
    for counts in (False, True)
]
_CLIPPING = [
    (training.steps.RUN_NOT_CLIPPED(), Rules(clip="never")),
    (training.steps.RUN_SCALED_UP_TO_NORM(), Rules(clip="always")),
    (training.steps.SHORT_WINDOW_NOT_CLIPPED(), Rules(clip="not short")),
    (training.steps.CLIPPED_BY_OWN_NORM(), Rules(clip="own")),
    (training.steps.CLIPPED_PER_MICRO_BATCH(), Rules(clip="each")),
]
