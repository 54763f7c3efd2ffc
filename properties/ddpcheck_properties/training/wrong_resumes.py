"""What can go wrong with a training run that goes on from a checkpoint, in words and as rules."""

from __future__ import annotations

from functools import partial

from ddpcheck.job import Train

from .gone_wrong import Lost, Rules, law_factor


def wrong_resumes(plan: Train, epoch: int, world_size: int) -> list[tuple[str, Rules]]:
    """What a run can lack that goes on after so many epochs."""
    made = []
    if plan.schedule == "linear":
        sentence = "the schedule of the run that was cut was as long as that run, not as all epochs"

        def shorter(i: float, n: float) -> float:
            cut = n * epoch / plan.epochs
            return law_factor(plan, i, cut if i < cut else n)

        made.append((sentence, Rules(factor=shorter)))

        def later(earlier: int, i: float, n: float) -> float:
            return law_factor(plan, i - n * earlier / plan.epochs if i >= n * epoch / plan.epochs else i, n)

        def stretched(i: float, n: float) -> float:
            begin = n * epoch / plan.epochs
            return law_factor(plan, i, n) if i < begin else law_factor(plan, i - begin, max(1.0, n - begin))

        made.append(("after resuming the schedule begins anew, over the steps that are left", Rules(factor=stretched)))
        sentence = (
            "the schedule is one step behind, and the first step after resuming takes the rate that a run begins with"
        )
        made.append((sentence, Rules(behind=True)))
        sentence = "the schedule goes on by the steps of the last run only, not by those of the runs before it"
        made += [(sentence, Rules(factor=partial(later, earlier))) for earlier in range(1, epoch)]
    what: list[tuple[str, frozenset[Lost]]] = [
        ("the learning rate's schedule begins anew", frozenset({"schedule"})),
        ("the last step before is missing: what was saved is of before it", frozenset({"step"})),
        ("the last epoch before is missing: what was saved is of before it", frozenset({"epoch"})),
        ("the optimizer's state is lost: momentum begins anew", frozenset({"momentum"})),
        ("the optimizer's state and the schedule are lost", frozenset({"momentum", "schedule"})),
        ("nothing was loaded but the number of the epoch", frozenset({"parameters", "momentum", "schedule"})),
        ("the parameters were not loaded", frozenset({"parameters"})),
        ("nothing but the schedule was loaded", frozenset({"parameters", "momentum"})),
    ]
    if plan.max_norm is not None:
        what.append(("gradients are no longer clipped", frozenset({"clip"})))
    for sentence, lost in what:
        made.append((f"after resuming {sentence}, on all ranks", Rules(lost=lost, resumed=epoch)))
        if world_size > 1:
            only = f"after resuming {sentence}, on all ranks but rank 0: what it has loaded does not reach them"
            made.append((only, Rules(lost=lost, resumed=epoch, lost_on="others")))
        for rank in range(1, world_size) if world_size > 2 else ():
            made.append(
                (f"after resuming {sentence}, on rank {rank} only", Rules(lost=lost, resumed=epoch, lost_on=rank))
            )
    return made
