"""Laws of optimizer steps: the same hyperparameters on all ranks, and the same steps taken and skipped."""

from __future__ import annotations

from ...causes.audit import steps as causes
from ..evidence import Evidence
from .law import LawVerdict, broken, held, not_judged
from .resuming import restored_on_some_ranks


def hyperparameters_are_equal(evidence: Evidence) -> LawVerdict:
    seen = 0
    for together in evidence.aligned("step"):
        seen += bool(together[0]["groups"])
        for groups in zip(*(event["groups"] for event in together), strict=False):
            for name in groups[0]:
                values = [group.get(name) for group in groups]
                if any(value != values[0] for value in values):
                    step = together[0]["step"]
                    shown = ", ".join(f"{value:.6g}" if isinstance(value, float) else str(value) for value in values)
                    headline = f"{name} is {shown} in step {step}"
                    cause = causes.HYPERPARAMETERS_DIFFER(name=name, step=step, values=shown)
                    if name == "lr":
                        cause = causes.LEARNING_RATE_DIFFERS(step=step, values=shown)
                    return broken(headline, *restored_on_some_ranks(evidence, step), cause)
    return held(f"equal in {seen} steps") if seen else not_judged("no step of a torch optimizer was seen on all ranks")


def ranks_skip_the_same_steps(evidence: Evidence) -> LawVerdict:
    together = list(evidence.aligned("scaled_step"))
    if not together:
        return not_judged("there is no gradient scaler")
    for number, events in enumerate(together):
        if len({event["stepped"] for event in events}) > 1:
            ranks = tuple(rank for rank, event in enumerate(events) if not event["stepped"])
            cause = causes.SKIPPED_STEP_DIFFERS(ranks=ranks, step=number, line=events[ranks[0]]["line"])
            return broken(f"rank {ranks[0]} skips step {number}, others take it", cause)
    for looked in () if evidence.sharded else evidence.aligned("unscale"):
        seen = [event["grads"] for event in looked]
        if None not in seen and any(each != seen[0] for each in seen):
            return broken(
                f"the scaler looks at different gradients in step {looked[0]['step']}",
                causes.SCALER_CHECKS_OWN_GRADIENTS(line=looked[0]["line"]),
            )
    return held(f"{len(together)} steps of the scaler are alike")
