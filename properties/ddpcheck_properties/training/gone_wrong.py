"""What can go wrong with a training run, as rules by which it then goes (emulated.py), and in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from ddpcheck.job import Train

Factor = Callable[[float, float], float]
Lost = Literal["parameters", "momentum", "schedule", "step", "epoch", "clip"]


@dataclass(frozen=True)
class Rules:
    """How a run goes; the defaults are the law.

    weights: of micro-batches in a window: by their samples; equal; equal, and not divided by their number; by samples in a
    full window, though the window is short; or none but the last one's. tail: whether an epoch's last window is a step, is
    dropped if it is short, leaks into the next epoch's first then, is a step by itself, and so is what the next epoch begins
    with, or each of its micro-batches is a step, or each of all windows is. short: whether a last batch of fewer samples is
    taken as it is, is dropped, is divided by the samples of a full one, or counts for nothing where it has one sample. ranks:
    whose batches differ in size weigh as promised; equally; or by their sizes. clip: by the norm of what is synchronised;
    never; not in a short window; by each rank's own norm, before the reduction; so after every micro-batch; or to this norm
    where it is smaller, too. clip_times: what the largest norm is multiplied by. batch_size: another one than the plan's.
    anew: each epoch begins without momentum. kept: gradients go on from one epoch to the next. factor: of the learning rate
    at step i of n; None: the plan's. by_samples: the rank's own samples count as steps. by_micro_batches: these do, so many
    of them more or less. optimizer: what of it is another. lost: what a run lacks that goes on after epoch `resumed`, "step"
    being the last one before; lost_on: on all ranks, on all but rank 0, or on one. terms: the loss's auxiliary terms count as
    the samples do; in each micro-batch as in a whole window; once for each rank; or not at all. rate_in_momentum: the
    velocity has the learning rate in it. times: what reduced gradients are multiplied by. decay: weights decay through the
    gradient and its momentum; by themselves; or so at the learning rate that the run began with. synced: with which micro-
    batch of a window they are reduced; what others add is each rank's own. ahead: the inputs of a full batch are those of the
    one so many later in the epoch, or of the last. skipped: there is no update. stays: momentum is not taken on to the next
    step. parts: what the gradients of these ranks are multiplied by. rows: of a batch all samples are used; all but the last;
    the first in its place; or a short one is filled up with the epoch's first. turned: targets are those of the sample so
    many before, in each batch. rounded: the dtype through which inputs go. norm: the largest norm where the plan has none.
    wire: the dtype through which each rank's gradients go to the others. only: weights are wrong on this rank only. again: which
    steps are taken twice: none; every one; an epoch's last; or that one if its window is full. again_with: the second time
    takes the same gradients, or zeros. again_counts: it is a step of the schedule, too. behind: a step takes the rate that was
    set after the one before; the first of a run, or of one that goes on, the rate of the task.
    """

    weights: Literal["samples", "equal", "sum", "full", "last"] = "samples"
    tail: Literal["step", "dropped", "leaks", "apart", "counted", "singly"] = "step"
    short: Literal["taken", "dropped", "full", "single"] = "taken"
    ranks: Literal["promised", "equal", "by size"] = "promised"
    clip: Literal["reduced", "never", "not short", "own", "each", "always"] = "reduced"
    clip_times: float = 1.0
    batch_size: int | None = None
    anew: bool = False
    kept: bool = False
    factor: Factor | None = None
    by_samples: bool = False
    by_micro_batches: int | None = None
    rate_in_momentum: bool = False
    optimizer: Mapping[str, float] = field(default_factory=dict)
    lost: frozenset[Lost] = frozenset()
    lost_on: Literal["all", "others"] | int = "all"
    resumed: int = 0
    terms: Literal["law", "each", "ranks", "none"] = "law"
    times: float = 1.0
    decay: Literal["gradient", "apart", "unscheduled"] = "gradient"
    synced: Literal["last", "first"] = "last"
    ahead: int = 0
    skipped: bool = False
    stays: bool = False
    parts: Mapping[int, float] = field(default_factory=dict)
    rows: Literal["all", "but last", "first twice", "filled"] = "all"
    turned: int = 0
    rounded: str = ""
    norm: float | None = None
    wire: str = ""
    only: int | None = None
    again: Literal["never", "every", "last", "full"] = "never"
    again_with: Literal["the same", "zeros"] = "the same"
    again_counts: bool = False
    behind: bool = False


def law_factor(plan: Train, step: float, steps: float) -> float:
    """What the learning rate is multiplied by at a step of all steps."""
    return (steps - step) / steps if plan.schedule == "linear" else 1.0


def wrong_factors(plan: Train, world_size: int, parameters: int, doubt: str = "") -> list[tuple[str, Factor]]:
    """Learning rates that are not the plan's, as factors. parameters: how many the model has. doubt: what else doubles one."""
    many, k, _law = world_size, plan.micro_batches, partial(law_factor, plan)
    made: list[tuple[str, Factor]] = []
    if many > 1:
        made += [
            (
                f"the learning rate is {many} x too large: multiplied by the world size{doubt * (many == 2)}",
                lambda i, n: many * _law(i, n),
            ),
            (f"the learning rate is {many} x too small: divided by the world size", lambda i, n: _law(i, n) / many),
        ]
    made.append(
        ("the first step takes half its learning rate, as one that warms up", lambda i, n: _law(i, n) / (1 + (not i)))
    )
    if plan.schedule == "linear":
        made += [
            ("the learning rate stays what it was: the schedule has no effect", lambda i, n: 1.0),
            (
                "the schedule goes on with every epoch, not every step",
                lambda i, n: _law(i * plan.epochs // n, plan.epochs),
            ),
            ("the schedule is one step ahead: it goes on before the step, not after it", lambda i, n: _law(i + 1, n)),
            (
                "the schedule is one step behind: a step takes the learning rate from before the schedule's step",
                lambda i, n: _law(max(0, i - 1), n),
            ),
            (
                "the schedule's length leaves out the short last batch, or window, of each epoch",
                lambda i, n: max(0.0, _law(i, max(1, n - plan.epochs))),
            ),
            (
                "the schedule's length leaves out the short last batch, or window, of each epoch, and rates fall below 0",
                lambda i, n: _law(i, max(1, n - plan.epochs)),
            ),
            (
                "the short last batch, or window, of each epoch is no step of the schedule, which stays where it is",
                lambda i, n: _law(i - i // (n / plan.epochs), n),
            ),
            ("the schedule comes to 0 with the last step, one too early", lambda i, n: _law(i, max(1, n - 1))),
            (
                f"the schedule goes {parameters} steps further with each optimizer step: stepped once for each parameter",
                lambda i, n: max(0.0, _law(parameters * i, n)),
            ),
        ]
        if many > 1:
            made += [
                (
                    f"the schedule goes {many} steps further with each optimizer step: stepped once for each rank",
                    lambda i, n: max(0.0, _law(many * i, n)),
                ),
                (
                    f"the schedule is {many} x too long: its length was counted before the data were shared out",
                    lambda i, n: _law(i, many * n),
                ),
            ]
        if k > 1:
            made.append(
                ("the schedule goes on with every micro-batch, not every step", lambda i, n: max(0.0, _law(k * i, n)))
            )
            sentence = "the schedule's length is counted in micro-batches, not in steps"
            made += [(sentence, partial(_in_micro_batches, plan, less)) for less in range(k)]
    return made


def _in_micro_batches(plan: Train, less: int, step: float, steps: float) -> float:
    """less: how many micro-batches the last window of each epoch has fewer than others."""
    return law_factor(plan, step, plan.micro_batches * steps - less * plan.epochs)


def wrong_rules(plan: Train, world_size: int, parameters: int, *, terms: bool = False) -> list[tuple[str, Rules]]:
    """What can go wrong with such a run, in words. parameters: how many the model has. terms: the loss has auxiliary ones."""
    made = [*_WRONG_WINDOWS, *_FIRST_SYNCED * (world_size > 1)] * (plan.micro_batches > 1)
    factors = wrong_factors(plan, world_size, parameters, ", or each step is taken twice")
    made += [(sentence, Rules(factor=factor)) for sentence, factor in factors]
    if plan.schedule == "linear" and world_size > 1:
        made.append(
            ("each rank's learning rate depends on the samples that it has used itself: ranks differ", _BY_SAMPLES)
        )
    if plan.schedule == "linear":
        sentence = (
            "the learning rate is in the momentum: what earlier steps have put there keeps the rate that they had"
        )
        made.append((sentence, Rules(rate_in_momentum=True)))
        if plan.micro_batches > 1:
            sentence = "the schedule goes on with every micro-batch, also of short windows, and not with every step"
            made += [(sentence, Rules(by_micro_batches=more)) for more in (0, -1)]
    if world_size > 1:
        made += _WRONG_RANKS
        sentence = f"gradients are {world_size} x too small: divided by the world size once more"
        made.append((sentence, Rules(times=1 / world_size)))
        sentence = (
            f"gradients are {world_size} x too large: summed over the ranks, or the loss is multiplied by their number"
        )
        made.append((sentence, Rules(times=world_size)))
    made += _WRONG_EPOCHS + _WRONG_OPTIMIZERS + _WRONG_TERMS * terms
    made += [each for each in _TAKEN_AGAIN if plan.micro_batches > 1 or each[1].again == "last"]
    if world_size > 1 and plan.batch_size > 1:
        sentence = "the batch size is taken for that of all ranks together: each has smaller batches, and more steps"
        made.append((sentence, Rules(batch_size=max(1, plan.batch_size // world_size))))
    if plan.max_norm is None:
        made.append(("gradients are clipped to a norm of 1, though the task has none", Rules(norm=1.0)))
    if plan.max_norm is not None:
        made += _WRONG_CLIPPING
        if plan.micro_batches > 1:
            sentence = (
                f"the largest norm is {plan.micro_batches} x too large: multiplied by the number of micro-batches"
            )
            made.append((sentence, Rules(clip_times=plan.micro_batches)))
        made.append(("the largest norm is 2 x too large", Rules(clip_times=2.0)))
        made.append(("the largest norm is 2 x too small", Rules(clip_times=0.5)))
    return made


_BY_SAMPLES = Rules(by_samples=True)
_WRONG_RANKS = [
    (
        'ranks whose batches differ in size weigh by their sizes; who means that promises uneven_batches="weighted"',
        Rules(ranks="by size"),
    ),
    (
        'ranks whose batches differ in size weigh equally; who means that promises uneven_batches="equal_weight"',
        Rules(ranks="equal"),
    ),
]
_REFILLED = (
    "the inputs of a batch are those of one {} further on: one buffer was filled again before what it held was used"
)
_WRONG_EPOCHS = [
    ("the last batch of an epoch is dropped where it has fewer samples than others", Rules(short="dropped")),
    ("the last batch of an epoch is divided by the samples of a full one", Rules(short="full")),
    ("a batch of one sample counts for nothing: it is left out, or its gradient is zero", Rules(short="single")),
    ("each epoch begins with a new optimizer: momentum begins anew", Rules(anew=True)),
    ("the last gradients of an epoch are still there in the first step of the next: not reset", Rules(kept=True)),
    *((_REFILLED.format(later), Rules(ahead=later)) for later in (1, 2, 3, 4)),
]
_WRONG_OPTIMIZERS = [
    ("weight decay is missing", Rules(optimizer={"weight_decay": 0.0})),
    ("momentum is missing", Rules(optimizer={"momentum": 0.0})),
    ("weight decay is applied by itself, and not through the gradient and its momentum", Rules(decay="apart")),
    (
        "weight decay is applied by itself, at the learning rate that the run began with",
        Rules(decay="unscheduled"),
    ),
]
_WRONG_TERMS = [
    ("the loss's auxiliary terms are missing in the gradients", Rules(terms="none")),
    ("the loss's auxiliary terms count once for each micro-batch, not once for each step", Rules(terms="each")),
    ("the loss's auxiliary terms count once for every rank", Rules(terms="ranks")),
]
_WRONG_CLIPPING = [
    ("gradients are not clipped", Rules(clip="never")),
    (
        "gradients are made longer where they are shorter than the largest norm, in place of staying as they are",
        Rules(clip="always"),
    ),
    ("the short last window of an epoch is not clipped", Rules(clip="not short")),
    ("gradients are clipped by each rank's own norm, before the reduction", Rules(clip="own")),
    ("gradients are clipped after every micro-batch, when they are partial and not yet reduced", Rules(clip="each")),
]
_WRONG_WINDOWS = [
    (
        "the micro-batches of a window weigh equally, whatever their sizes: a mean of means is not the mean over its samples",
        Rules(weights="equal"),
    ),
    ("the gradients of the micro-batches are added up, and not averaged over the window", Rules(weights="sum")),
    ("the short last window of an epoch is divided by the micro-batches of a full one", Rules(weights="full")),
    ("the short last window of an epoch is dropped: its samples have no effect", Rules(tail="dropped")),
    ("the short last window of an epoch leaks into the first window of the next", Rules(tail="leaks")),
    ("every micro-batch of an epoch's last window is an update of its own", Rules(tail="apart")),
    ("every micro-batch is an update of its own, and no window is", Rules(tail="singly")),
    (
        "of a window only the last micro-batch's gradient is left: those before it were reset, or replaced",
        Rules(weights="last"),
    ),
    (
        "micro-batches are counted on from epoch to epoch: after one with a short window others end elsewhere",
        Rules(tail="counted"),
    ),
]

_ONCE_MORE = (
    "the last step of every epoch is taken twice: the loop ends with one more step, though nothing is left for it"
)
_EMPTY = "an epoch's last step is taken twice where its window is full: an empty window is left, and is a step, too"
_SECOND_TIME: tuple[tuple[Literal["the same", "zeros"], str], ...] = (
    ("the same", ""),
    ("zeros", ", with gradients of zero"),
)
_TAKEN_AGAIN = [
    (f"{words}{with_zeros}", replace(rules, again_with=taken, again_counts=counts))
    for words, rules in ((_ONCE_MORE, Rules(again="last")), (_EMPTY, Rules(again="full")))
    for taken, with_zeros in _SECOND_TIME
    for counts in (False, True)
]

_FIRST_SYNCED = [
    (
        "a window's first micro-batch is synchronised, and not its last: what the others add stays each rank's own",
        Rules(synced="first"),
    )
]
