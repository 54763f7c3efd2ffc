"""Laws of gradients: synchronised, averaged, equal to those of one process on the whole batch, finite, clipped last."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from ...causes import Cause
from ...causes.audit import gradients as causes
from ...counted_nouns import counted
from ..event_journal import Event
from ..evidence import Evidence, StepSeen
from .class_weights import divided_by_own_weights
from .constant_gradients import constant_gradients
from .constants import constant_of_each_rank
from .gathered_targets import targets_not_shifted
from .law import LawVerdict, broken, held, not_judged
from .losses import lost_in_the_loss
from .replicas import buffers_equal_until, equal_until, untrained_model_apart

_CLOSE = 1e-3
"""Weights and factors within this part of 1/N, 1 or N are reported as that value."""


_UNSEEN = {"bfloat16": "2 %", "float16": "0.2 %"}


def looked_at(step: Event) -> bool:
    """Whether the gradients of a step were looked at: after the recorded steps, those of few are."""
    return bool(step.get("looked", True))


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= _CLOSE * max(abs(b), 1e-9)


def _differing(together: Sequence[Event]) -> list[int]:
    """Numbers of the optimizer's parameters whose gradients differ between ranks. None if some rank did not look at them."""
    if not all(looked_at(event) for event in together):
        return []
    first = together[0]["grads"]
    return [
        number
        for number, value in enumerate(first)
        if any(len(e["grads"]) <= number or e["grads"][number] != value for e in together[1:])
    ]


def uncovered(evidence: Evidence) -> tuple[int, Cause] | None:
    """The first step with gradients that differ for parameters outside all wrappers, while other parameters are in
    one.
    """
    if not evidence.real.of(0, "wrapped"):
        return None
    for together in evidence.aligned("step"):
        first = together[0]
        for number in _differing(together):
            status = first["covered"][number]
            if status == "synchronised":
                continue
            return int(first["step"]), _why_uncovered(evidence, first, number, status)
    return None


def _why_uncovered(evidence: Evidence, step: Event, number: int, status: str) -> Cause:
    parameter = evidence.name(f"{step['optimizer']}.{number}")
    if status == "frozen":
        return causes.PARAMETER_UNFROZEN(parameter=parameter)
    if status == "ignored":
        return causes.PARAMETER_NOT_SYNCHRONISED(
            parameter=parameter, how="The wrapper was told to ignore it.", line=step["line"]
        )
    if all(each == "none" for each in step["covered"]):
        group = next(e for e in evidence.real.of(0, "group") if e["optimizer"] == step["optimizer"])
        return causes.MODULE_NOT_WRAPPED(line=group["line"])
    return causes.PARAMETER_ADDED(parameter=parameter)


def gradients_are_synchronised(evidence: Evidence) -> LawVerdict:
    if evidence.ranks == 1:
        return not_judged("there is one rank")
    if evidence.sharded or evidence.dealt_out:
        return not_judged(evidence.sharded or evidence.dealt_out)
    seen = 0
    for together in evidence.aligned("step"):
        if not all(looked_at(event) for event in together):
            continue
        seen += any(together[0]["grads"]) or not evidence.real.of(0, "gathered")
        numbers = _differing(together)
        if not numbers:
            continue
        first = together[0]
        parameters = [evidence.name(f"{first['optimizer']}.{number}") for number in numbers]
        headline = (
            f"the ranks step with different gradients for {len(numbers)} of {len(first['grads'])} parameters in step "
            f"{first['step']}, first {parameters[0]}"
        )
        outside = uncovered(evidence)
        if outside is not None and outside[0] == first["step"]:
            return broken(headline, outside[1])
        return broken(headline, _why_unsynchronised(evidence, together, parameters[0]))
    if not seen:
        return not_judged("no optimizer step was seen on all ranks")
    return held(f"equal in all bits in {counted(seen, 'step')}")


def _why_unsynchronised(evidence: Evidence, together: tuple[Event, ...], parameter: str) -> Cause:
    step = together[0]
    line = step["line"]
    forwards = [e for e in evidence.real.of(0, "forward") if e["step"] == step["step"] and e["grad"]]
    backwards = [e for e in evidence.real.of(0, "backward") if e["step"] == step["step"]]
    at = backwards[-1]["line"] if backwards else line
    missing = [number for number in range(len(step["grads"])) if len({bool(e["grads"][number]) for e in together}) > 1]
    reduced = [e for e in evidence.real.of(0, "collective") if e["step"] == step["step"] and e["number"] > 0]
    if not evidence.real.of(0, "wrapped"):
        if missing and reduced:
            name = evidence.name(f"{step['optimizer']}.{missing[0]}")
            return causes.COLLECTIVES_PAIR_DIFFERENT(parameter=name, line=reduced[0]["line"])
        how = "No wrapper holds it, and no collective follows the backward pass."
        if reduced:
            how = f"Collectives follow the backward pass, first at {reduced[0]['line']}, but leave it out, or a part of it."
        return causes.PARAMETER_NOT_SYNCHRONISED(parameter=parameter, how=how, line=line)
    if not forwards:
        return causes.FORWARD_BYPASSES_WRAPPER(line=at)
    if not forwards[-1]["sync"]:
        return causes.LAST_MICRO_BATCH_NOT_SYNCHRONISED(line=at)
    how = "It is in the wrapper, so it was changed after the reduction, or reached without the wrapper's forward."
    return causes.PARAMETER_NOT_SYNCHRONISED(parameter=parameter, how=how, line=line)


def gradients_equal_those_of_one_process(evidence: Evidence) -> LawVerdict:
    """Compare G with the mirror M = 1, in steps with equal replicas in which the mirror got the same samples and
    draws.
    """
    compared = evidence.compared
    if evidence.sharded or evidence.dealt_out:
        return not_judged(evidence.sharded or evidence.dealt_out)
    if not compared:
        return not_judged("no step was compared with one process")
    limit = min(equal_until(evidence), buffers_equal_until(evidence))
    usable = [step for step in compared if not step.not_comparable and step.step < limit]
    if not usable:
        if limit == 0:
            return not_judged("the ranks do not start equal")
        return not_judged(compared[0].not_comparable)
    apart = [step for step in usable if _unsynchronised(evidence, step.step)]
    usable = [step for step in usable if step not in apart]
    if not usable:
        return not_judged("gradients are not synchronised")
    if gradients_depend_on_the_data(evidence).status == "broken":
        return not_judged("gradients are zero, or not finite")
    if clipping_comes_last(evidence).status == "broken":
        return not_judged("gradients are clipped before they are complete")
    off = [step for step in usable if step.off_one]
    left_out = [step for step in compared if step.not_comparable]
    if not off:
        worst, rounding = max(step.relative_off for step in usable), max(step.noise for step in usable)
        note = f"{counted(len(usable), 'step')}, at most {worst:.1e} off; rounding {rounding:.1e}"
        limits = []
        low = {e["precision"] for e in evidence.real.of(0, "step") if e.get("precision")}
        if low:
            lowest = "bfloat16" if "bfloat16" in low else "float16"
            limits.append(f"products are in {lowest}: differences below {_UNSEEN[lowest]} are not seen")
        if evidence.sent_precision:
            sent = evidence.sent_precision
            limits.append(f"gradients are sent in {sent}: differences below {_UNSEEN[sent]} are not seen")
        if left_out:
            limits.append(f"step {left_out[0].step} not judged: {left_out[0].not_comparable}")
        if apart:
            limits.append(f"step {apart[0].step} not judged: its gradients are not synchronised")
        return held(note, observation="; ".join(limits))
    return _explained(evidence, usable, off)


def _is_scaled(step: StepSeen) -> bool:
    """Whether the gradient is that of one process, times a factor."""
    return step.factor_one_off <= 1


def _unsynchronised(evidence: Evidence, step: int) -> bool:
    return any(_differing(together) for together in evidence.aligned("step") if together[0]["step"] == step)


def _explained(evidence: Evidence, usable: list[StepSeen], off: list[StepSeen]) -> LawVerdict:
    ranks = evidence.ranks
    first = off[0]
    line = _backward_line(evidence, first.step)
    name = max(first.off_one, key=lambda each: first.off_one[each])
    what = "update" if _sees_updates(evidence) else "gradient"
    headline = (
        f"the {what} differs by {first.relative_off:.1e} from that of one process in step {first.step}, "
        f"{first.off_one[name]:.0f} times what rounding allows in {evidence.name(name)}"
    )
    details: tuple[str, ...] = (
        f"G = sum v_r g_r with v = {_shown(first.v)}; one process: w = {' | '.join(map(_shown, first.w))}",
    )
    if all(step.rate for step in off):
        return held(
            observation=f"every update is {ranks} times that of one process: {first.rate} grows with the world size. This is "
            "right if it is meant so"
        )
    hooks = evidence.real.of(0, "comm_hook")
    scaled = list(takewhile(_is_scaled, usable)) if hooks else usable  # a hook may compress from some step on
    factors = {round(step.factor_one, 3) for step in scaled}
    if all(map(_is_scaled, scaled)) and len(factors) == 1 and (not hooks or factors != {1.0}):
        factor = first.factor_one
        if _divided_twice(evidence, scaled):
            return broken(headline, causes.LOSS_DIVIDED_TWICE(ranks=ranks, line=line), details=details)
        if _near(factor, 1 / ranks) and (
            (all(_near(v, 1 / ranks) for v in first.v) and _all_near(first.w, 1.0))
            or (_sees_updates(evidence) and _near(first.factor_all, 1 / ranks) and first.factor_all_off <= 1)
        ):
            cause = lost_in_the_loss(evidence, [step.step for step in usable], line)
            if cause is not None:
                return broken(headline, cause, details=details)
            return held(
                observation=f"every gradient is 1/{ranks} of one process's: the loss is a sum over samples and the ranks' "
                "gradients are averaged. This is right if the learning rate is meant so"
            )
        if _near(factor, ranks) and all(_near(v, 1.0) for v in first.v):
            if _sees_updates(evidence):
                details = (
                    *details,
                    f"a learning rate that is multiplied by {ranks}, the world size, looks the same here",
                )
            return broken(headline, causes.GRADIENTS_SUMMED(factor=factor, ranks=ranks), details=details)
        cause = causes.GRADIENTS_SCALED(factor=factor, weights=_shown(first.v), line=line)
        return broken(headline, cause, details=details)
    if hooks and first.w and first.w_off <= 1 and not _equal_weights(first.w):
        return broken(headline, _normalised_per_rank(evidence, first, _mean(ranks), line), details=details)
    if hooks:
        whole = f"steps before {first.step} agree; " if first is not usable[0] else ""
        return not_judged(
            f"{whole}the communication hook {hooks[0]['name']} at {hooks[0]['line']} changes gradients on purpose"
        )
    if first.v_off:
        wrong = max(first.v_off, key=lambda each: first.v_off[each])
        return broken(headline, _no_combination(evidence, first, wrong), details=details)
    if by_position := targets_not_shifted(evidence, first.step):
        return broken(headline, by_position, details=details)
    if all(_near(v, first.v[0]) for v in first.v) and first.w_off <= 1 and first.w:
        if _one_rank_only(first.w):
            return not_judged(
                "the run as one process saw one rank's samples only: how the script forms its batches was not recognised; "
                "mark them with ddpcheck.audit.batch()"
            )
        return broken(headline, _normalised_per_rank(evidence, first, _shown(first.v), line), details=details)
    lost = [event for event in _gathers(evidence) if event["loses_gradient"]]
    if lost:
        cause = causes.GATHERED_WITHOUT_GRADIENT(operation=lost[0]["op"], line=lost[0]["line"])
        return broken(headline, cause, details=details)
    if of_each_rank := constant_of_each_rank(evidence):
        return broken(headline, of_each_rank, causes.LOSS_COUPLES_SAMPLES(line=line), details=details)
    if module := untrained_model_apart(evidence, first.step):
        return not_judged(f"the ranks use different parameters of {module}, which no optimizer trains")
    if first.order_matters:
        return not_judged(
            f"one process's gradient in step {first.step} depends on the order of the samples, as where a batch has one task"
        )
    return broken(headline, causes.LOSS_COUPLES_SAMPLES(line=line), details=details)


def _divided_twice(evidence: Evidence, steps: list[StepSeen]) -> bool:
    """Whether each rank's loss is divided by what grows with the world size, and the gradients are averaged as well.

    N identical ranks then have the same factor 1/N. If a plain sum over samples is averaged, their gradient is N times as large.
    A learning rate that grows with the world size makes up for it.
    """
    rates = [
        [group.get("lr") for event in run.of(0, "step")[:1] for group in event["groups"]]
        for run in (evidence.real, evidence.mirrors.get("one", evidence.real))
    ]
    return (
        not _sees_updates(evidence)
        and all(_near(step.factor_one, 1 / evidence.ranks) and _near(step.factor_all, 1.0) for step in steps)
        and all(step.factor_all_off <= 1 and _all_near(step.w, 1.0) for step in steps)
        and all(_near(v, 1 / evidence.ranks) for step in steps for v in step.v)
        and rates[0] == rates[1]
    )


def _sees_updates(evidence: Evidence) -> bool:
    """Whether updates are compared instead of gradients, as in NumPy scripts, whose optimizers show no gradients."""
    return any(event["backend"] == "mpi" for event in evidence.real.of(0, "world"))


def _normalised_per_rank(evidence: Evidence, step: StepSeen, got: str, line: str) -> Cause:
    by_weights = divided_by_own_weights(evidence, step)
    return by_weights or causes.LOSS_NORMALISED_PER_RANK(wanted=_shown(step.w[0]), got=got, line=line)


def _no_combination(evidence: Evidence, step: StepSeen, wrong: str) -> Cause:
    together = next(each for each in evidence.aligned("step") if each[0]["step"] == step.step)
    partly = [
        n for n, counts in enumerate(zip(*(e["parts"] for e in together), strict=False)) if 0 in counts and any(counts)
    ]
    reduced = [e for e in evidence.real.of(0, "collective") if e["step"] == step.step and e["number"] > 0]
    clips = [e for e in evidence.real.of(0, "clip") if e["step"] == step.step]
    line = reduced[0]["line"] if reduced else clips[0]["line"] if clips else together[0]["line"]
    if partly and reduced and not evidence.real.of(0, "wrapped"):
        name = evidence.name(f"{step.optimizer}.{partly[0]}")
        return causes.COLLECTIVES_PAIR_DIFFERENT(parameter=name, line=line)
    if step.part_factors:
        return causes.PARTS_SCALED_APART(factors=_shown(step.part_factors), line=together[0]["line"])
    return causes.REDUCTION_IS_NO_COMBINATION(parameter=evidence.name(wrong), line=line)


def _backward_line(evidence: Evidence, step: int) -> str:
    found = [event["line"] for event in evidence.real.of(0, "backward") if event["step"] == step]
    return str(found[-1]) if found else ""


def _one_rank_only(weights: Sequence[Sequence[float]]) -> bool:
    return all(sum(abs(w) > _CLOSE for w in each) == 1 for each in weights) and len(weights[0]) > 1


def _all_near(weights: Sequence[Sequence[float]], value: float) -> bool:
    return bool(weights) and all(_near(w, value) for each in weights for w in each)


def _equal_weights(weights: Sequence[Sequence[float]]) -> bool:
    """Whether one process weights all ranks equally, in each backward of the window."""
    return all(_near(w, each[0]) for each in weights for w in each)


def _mean(ranks: int) -> str:
    """The weights of a mean over ranks, which a communication hook computes."""
    return _shown((1 / ranks,) * ranks)


def _shown(weights: Sequence[float]) -> str:
    return ", ".join(f"{weight:.4g}" for weight in weights)


def _gathers(evidence: Evidence) -> list[Event]:
    return [event for event in evidence.real.of(0, "collective") if event["op"].startswith("all_gather")]


def gathered_features_keep_their_gradient(evidence: Evidence) -> LawVerdict:
    gathers = _gathers(evidence)
    lost = [event for event in gathers if event["loses_gradient"]]
    if lost:
        return broken(
            f"a tensor that needs a gradient is gathered at {lost[0]['line']}",
            causes.GATHERED_WITHOUT_GRADIENT(operation=lost[0]["op"], line=lost[0]["line"]),
        )
    return held() if gathers else not_judged("the script gathers nothing")


def gradients_depend_on_the_data(evidence: Evidence) -> LawVerdict:
    steps = [event for event in evidence.real.of(0, "step") if looked_at(event)]
    if not steps:
        return not_judged("no optimizer step was seen")
    for event in steps:
        if not event["finite"]:
            cause = causes.GRADIENTS_NOT_FINITE(step=event["step"], line=_backward_line(evidence, event["step"]))
            return broken(f"gradients are not finite in step {event['step']}", cause)
    for optimizer in {event["optimizer"] for event in steps}:
        own = [event for event in steps if event["optimizer"] == optimizer]
        if all(event["zero"] for event in own):
            cause = causes.GRADIENTS_ALL_ZERO(line=_backward_line(evidence, own[0]["step"]))
            return broken(f"every gradient is zero in {counted(len(own), 'step')}", cause)
    found = constant_gradients(evidence)
    return held() if found is None else broken(*found)


def clipping_comes_last(evidence: Evidence) -> LawVerdict:
    """Gradients must be clipped after the reduction, once in each step."""
    clips = evidence.each_rank("clip")
    if not any(clips):
        return not_judged("the script does not clip by torch.nn.utils")
    if evidence.sharded:
        return not_judged(evidence.sharded)
    for step in range(evidence.steps_seen):
        own = [[event for event in events if event["step"] == step] for events in clips]
        numbers = {event["number"] for event in own[0]}
        if len(numbers) > 1:
            cause = causes.CLIP_EVERY_MICRO_BATCH(count=len(numbers), line=own[0][0]["line"])
            return broken(f"step {step} clips {len(numbers)} times", cause)
        for together in zip(*own, strict=False):
            seen = [event["digests"] for event in together]
            if None in seen:
                continue
            norms = [event["norm"] for event in together if event["norm"] is not None]
            shown = ", ".join(f"{norm:.4g}" for norm in norms)
            line = together[0]["line"]
            if any(each != seen[0] for each in seen):
                if _unsynchronised(evidence, step):
                    continue
                cause = causes.CLIP_BEFORE_REDUCTION(norms=shown or "of the gradients", line=line)
                return broken(f"the ranks clip different gradients in step {step}", cause)
            if len(norms) == len(together) and max(norms) - min(norms) > _CLOSE * max(norms):
                cause = causes.CLIP_BY_OWN_PART(norms=shown, line=line)
                return broken(f"the ranks clip equal gradients by different norms in step {step}", cause)
    return held()
