"""Hypotheses about all steps of a training run."""

from __future__ import annotations

from dataclasses import replace

from ...causes import Cause, training
from ...job import Train
from .emulation_rules import Rules
from .schedules import wrong_factors

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
        made.append((training.GRADIENTS_DIVIDED_AGAIN(world_size=world_size), Rules(times=1 / world_size)))
        made.append((training.GRADIENTS_SUMMED_OVER_RANKS(world_size=world_size), Rules(times=world_size)))
    made += _EPOCHS + _OPTIMIZERS + _TERMS * terms
    made += [each for each in _TAKEN_AGAIN if windows or each[1].again == "last"]
    if several and plan.batch_size > 1:
        made.append((training.BATCH_SIZE_OF_ALL_RANKS(), Rules(batch_size=max(1, plan.batch_size // world_size))))
    return made + _clipping(plan)


def _schedules(plan: Train, uneven: bool) -> Candidates:
    by_samples = training.RATE_BY_OWN_SAMPLES() if uneven else training.SCHEDULE_BY_SAMPLES()
    made = [(by_samples, Rules(by_samples=True)), (training.RATE_IN_MOMENTUM(), Rules(rate_in_momentum=True))]
    if plan.micro_batches > 1:
        made += [(training.SCHEDULE_PER_MICRO_BATCH(), Rules(by_micro_batches=more)) for more in (0, -1)]
    return made


def _clipping(plan: Train) -> Candidates:
    if plan.max_norm is None:
        return [(training.CLIPPED_UNASKED(), Rules(norm=1.0))]
    number = plan.micro_batches
    times = [(training.MAX_NORM_TIMES_MICRO_BATCHES(number=number), Rules(clip_times=number))] * (number > 1)
    return [
        *_CLIPPING,
        *times,
        (training.MAX_NORM_DOUBLED(), Rules(clip_times=2.0)),
        (training.MAX_NORM_HALVED(), Rules(clip_times=0.5)),
    ]


_WINDOWS = [
    (training.MICRO_BATCHES_WEIGH_EQUALLY(), Rules(weights="equal")),
    (training.MICRO_BATCHES_SUMMED(), Rules(weights="sum")),
    (training.SHORT_WINDOW_DIVIDED_AS_FULL(), Rules(weights="full")),
    (training.SHORT_WINDOW_DROPPED(), Rules(tail="dropped")),
    (training.SHORT_WINDOW_LEAKS(), Rules(tail="leaks")),
    (training.LAST_WINDOW_SPLIT(), Rules(tail="apart")),
    (training.STEP_PER_MICRO_BATCH(), Rules(tail="singly")),
    (training.LAST_MICRO_BATCH_ONLY(), Rules(weights="last")),
    (training.MICRO_BATCHES_COUNTED_ON(), Rules(tail="counted")),
]
_FIRST_SYNCHRONISED = [(training.FIRST_MICRO_BATCH_SYNCHRONISED(), Rules(synced="first"))]
_RANKS = [
    (training.WEIGHED_BY_SIZE(), Rules(ranks="by size")),
    (training.WEIGHED_EQUALLY(), Rules(ranks="equal")),
]
_EPOCHS = [
    (training.SHORT_BATCH_DROPPED(), Rules(short="dropped")),
    (training.SHORT_BATCH_DIVIDED_AS_FULL(), Rules(short="full")),
    (training.SINGLE_SAMPLE_BATCH_IGNORED(), Rules(short="single")),
    (training.OPTIMIZER_PER_EPOCH(), Rules(anew=True)),
    (training.GRADIENTS_KEPT_BETWEEN_EPOCHS(), Rules(kept=True)),
    *((training.BUFFER_REFILLED(later=later), Rules(ahead=later)) for later in (1, 2, 3, 4)),
]
_OPTIMIZERS = [
    (training.DECAY_MISSING(), Rules(optimizer={"weight_decay": 0.0})),
    (training.MOMENTUM_ABSENT(), Rules(optimizer={"momentum": 0.0})),
    (training.DECAY_DECOUPLED(), Rules(decay="apart")),
    (training.DECAY_AT_FIRST_RATE(), Rules(decay="unscheduled")),
]
_TERMS = [
    (training.TERMS_MISSING(), Rules(terms="none")),
    (training.TERMS_PER_MICRO_BATCH(), Rules(terms="each")),
    (training.TERMS_PER_RANK(), Rules(terms="ranks")),
]
_TAKEN_AGAIN = [
    (cause, replace(rules, again_counts=counts))
    for cause, rules in (
        # if last windows are full, both give the same end: a loop that takes every last step twice also fails elsewhere
        (training.EMPTY_WINDOW_STEPS(), Rules(again="full")),
        (training.EMPTY_WINDOW_STEPS_WITH_ZEROS(), Rules(again="full", again_with="zeros")),
        (training.STEP_TAKEN_TWICE(), Rules(again="last")),
        (training.STEP_TAKEN_TWICE_WITH_ZEROS(), Rules(again="last", again_with="zeros")),
    )
    for counts in (False, True)
]
_CLIPPING = [
    (training.RUN_NOT_CLIPPED(), Rules(clip="never")),
    (training.RUN_SCALED_UP_TO_NORM(), Rules(clip="always")),
    (training.SHORT_WINDOW_NOT_CLIPPED(), Rules(clip="not short")),
    (training.CLIPPED_BY_OWN_NORM(), Rules(clip="own")),
    (training.CLIPPED_PER_MICRO_BATCH(), Rules(clip="each")),
]
