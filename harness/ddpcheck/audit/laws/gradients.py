"""Laws of gradients: synchronised, averaged, equal to those of one process on the whole batch, finite, clipped last."""

from __future__ import annotations

from collections.abc import Sequence

from ...causes import Cause
from ...causes.audit import gradients as causes
from ...causes.audit.steps import RANKS_STEP_APART
from ...counted_nouns import counted
from ..event_journal import Event
from ..evidence import Evidence
from .constant_gradients import constant_gradients
from .decisions import decided_by_one_rank, other_batches_from
from .divided_terms import terms_are_divided_by_all_samples
from .gathered_targets import gathers
from .gradient_differences import backward_line, difference_from_one_process
from .law import LawVerdict, broken, held, not_judged
from .losses import CLOSE
from .modes import ranks_train_in_the_same_mode
from .parameters_after_steps import cover_parameters, made_equal_after
from .passes import ranks_skip_other_batches
from .replicas import buffers_equal_until, equal_until
from .waiting import gradients_are_in_flight

_NOT_AWAITED = "asynchronous collectives are not awaited"
_UNSEEN = {"bfloat16": "2 %", "float16": "0.2 %"}


def looked_at(step: Event) -> bool:
    """Whether the gradients of a step were looked at: after the recorded steps, those of few are."""
    return bool(step.get("looked", True))


def _differing(together: Sequence[Event]) -> list[int]:
    """Numbers of the optimizer's parameters whose gradients differ between ranks. None if some rank did not look at them."""
    if not all(looked_at(event) for event in together):
        return []
    first = together[0]["grads"]
    return [number for number in range(len(first)) if _differs(together, number)]


def _differs(together: Sequence[Event], number: int) -> bool:
    first, *others = (event["grads"] for event in together)
    return any(len(grads) <= number or grads[number] != first[number] for grads in others)


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
    if status == "added":
        return causes.PARAMETER_ADDED(parameter=parameter)
    group = next(e for e in evidence.real.of(0, "group") if e["optimizer"] == step["optimizer"])
    if all(each == "none" for each in step["covered"]):
        return causes.MODULE_NOT_WRAPPED(line=group["line"])
    return causes.PARAMETER_OUTSIDE(parameter=parameter, line=group["line"])


def gradients_are_synchronised(evidence: Evidence) -> LawVerdict:
    if evidence.ranks == 1:
        return not_judged("there is one rank")
    if evidence.gradients_apart:
        return not_judged(evidence.gradients_apart)
    if gradients_are_in_flight(evidence):
        return not_judged(_NOT_AWAITED)
    seen, averaged = 0, ""
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
        if averaged and first["step"] >= evidence.steps_seen - 1:
            continue  # what follows the last step was not seen
        if made_equal := made_equal_after(evidence, first["step"]):
            if isinstance(made_equal, str):
                averaged = averaged or made_equal
                continue
            return broken(headline, made_equal)
        outside = uncovered(evidence)
        if outside is not None and outside[0] == first["step"]:
            return broken(headline, outside[1])
        return broken(headline, _why_unsynchronised(evidence, together, parameters[0]))
    if not seen:
        return not_judged("no optimizer step was seen on all ranks")
    return held("" if averaged else f"equal in all bits in {counted(seen, 'step')}", observation=averaged)


def ranks_step_together(evidence: Evidence) -> LawVerdict:
    """Gradients that differ since the ranks step after different backward passes. Schedules and clipping then differ, too."""
    judged = gradients_are_synchronised(evidence)
    if judged.status == "broken" and RANKS_STEP_APART.explains(judged.causes):
        return judged
    return held() if judged.status != "not judged" else judged


def _last_step_with_backward(evidence: Evidence, step: int) -> int:
    """This step, or the one before it whose backward gave this optimizer its gradients, as where two optimizers step."""
    return max((e["step"] for e in evidence.real.of(0, "backward") if e["step"] <= step), default=step)


def _backwards_until(events: Sequence[Event], step: Event) -> int:
    """The backward passes before this step."""
    until = events[: events.index(step)]
    return sum(event["kind"] == "backward" and not event.get("again") for event in until)


def _why_unsynchronised(evidence: Evidence, together: tuple[Event, ...], parameter: str) -> Cause:
    step = together[0]
    line = step["line"]
    counts = tuple(_backwards_until(evidence.real.events[rank], event) for rank, event in enumerate(together))
    if len(set(counts)) > 1:
        return RANKS_STEP_APART(step=step["step"], counts=counts, line=line)
    number_of_step = _last_step_with_backward(evidence, step["step"])
    forwards = [e for e in evidence.real.of(0, "forward") if e["step"] == number_of_step and e["grad"]]
    backwards = [e for e in evidence.real.of(0, "backward") if e["step"] == number_of_step]
    at = backwards[-1]["line"] if backwards else line
    missing = [number for number in range(len(step["grads"])) if len({bool(e["grads"][number]) for e in together}) > 1]
    reduced = [e for e in evidence.real.of(0, "collective") if e["step"] == number_of_step and e["number"] > 0]
    if not evidence.real.of(0, "wrapped"):
        if reduced and parameter in [evidence.name(f"{step['optimizer']}.{n}") for n in step.get("sparse", ())]:
            return causes.SPARSE_WITHOUT_INDICES(parameter=parameter, line=reduced[0]["line"])
        if missing and reduced:
            name = evidence.name(f"{step['optimizer']}.{missing[0]}")
            return causes.COLLECTIVES_PAIR_DIFFERENT(parameter=name, line=reduced[0]["line"])
        how = "No wrapper holds it, and no collective follows the backward pass."
        if reduced:
            at = reduced[0]["line"]
            how = f"Collectives follow the backward pass, first at {at}, but leave it out, or a part of it."
            everything = all(_differs(together, number) for number in range(len(step["grads"])))
            if everything and cover_parameters(evidence, reduced):
                how = f"As many numbers as there are parameters are reduced at {at}; they do not reach the gradients."
        return causes.PARAMETER_NOT_SYNCHRONISED(parameter=parameter, how=how, line=line)
    if not forwards:
        return causes.FORWARD_BYPASSES_WRAPPER(line=at)
    if not forwards[-1]["sync"]:
        entered = {(e["step"], e["number"]) for e in evidence.real.of(0, "no_sync")}
        own = forwards[-1]["step"], forwards[-1]["number"]
        if backwards and all(backwards[-1].get("sync") or [False]):
            if own[1] < backwards[-1]["number"]:
                return causes.FORWARD_BYPASSES_WRAPPER(line=at)
            if own not in entered:
                return causes.SYNCHRONISED_TOO_LATE(forward=forwards[-1]["line"], line=at)
        return causes.LAST_MICRO_BATCH_NOT_SYNCHRONISED(line=at)
    if waits := _awaited_in_vain(evidence, together):
        return waits
    left = [event.get("reduced", ()) for event in together]
    if all(left):
        number = next(n for n in range(len(step["grads"])) if _differs(together, n))
        if left[0][number] is not None and all(own[number] == left[0][number] for own in left):
            return causes.GRADIENT_CHANGED_APART(parameter=parameter, backward=at, line=line)
    how = "It is in the wrapper, so it was changed after the reduction, or reached without the wrapper's forward."
    return causes.PARAMETER_NOT_SYNCHRONISED(parameter=parameter, how=how, line=line)


def _awaited_in_vain(evidence: Evidence, together: tuple[Event, ...]) -> Cause | None:
    """The cause, if a wrapper awaits a gradient that this step does not compute: then a bucket is never reduced."""
    if any(event["find_unused_parameters"] or event["static_graph"] for event in evidence.real.of(0, "wrapped")):
        return None
    step = together[0]
    for number, covered in enumerate(step["covered"]):
        if covered == "synchronised" and not all(event["grads"][number] for event in together):
            how = "It is used, or its result is in the loss, on some ranks only, or on none."
            if not step["needs"][number]:
                how = "It was frozen after the wrapper was made."
            name = evidence.name(f"{step['optimizer']}.{number}")
            return causes.WRAPPER_WAITS(parameter=name, step=step["step"], how=how)
    return None


def gradients_equal_those_of_one_process(evidence: Evidence) -> LawVerdict:
    """Compare G with the mirror M = 1, in steps with equal replicas in which the mirror got the same samples and
    draws.
    """
    compared = evidence.compared
    if evidence.gradients_apart:
        return not_judged(evidence.gradients_apart)
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
    if gradients_are_in_flight(evidence):
        return not_judged(_NOT_AWAITED)
    if clipping_comes_last(evidence).status == "broken":
        return not_judged("gradients are clipped before they are complete")
    if ranks_train_in_the_same_mode(evidence).status == "broken":
        return not_judged("the ranks train in different modes")
    if any(step.off_one for step in usable) and terms_are_divided_by_all_samples(evidence).status == "broken":
        return not_judged("a term of the loss is divided by one rank's samples")
    other = other_batches_from(evidence)
    if other is not None:
        if chosen := decided_by_one_rank(evidence, other):
            return broken(f"one process trains on other batches than the ranks from step {other} on", chosen)
        usable = [step for step in usable if step.step < other]
        if not usable:
            return not_judged(f"one process reads other batches than the ranks in step {other}")
    if ranks_skip_other_batches(evidence):
        return not_judged("each rank skips other batches of its loader, as one process does not")
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
        if other is not None:
            limits.append(f"step {other} not judged: one process reads other batches, as if some are skipped by a loss")
        if apart:
            limits.append(f"step {apart[0].step} not judged: its gradients are not synchronised")
        return held(note, observation="; ".join(limits))
    return difference_from_one_process(evidence, usable, off)


def _unsynchronised(evidence: Evidence, step: int) -> bool:
    return any(_differing(together) for together in evidence.aligned("step") if together[0]["step"] == step)


def gathered_features_keep_their_gradient(evidence: Evidence) -> LawVerdict:
    every = gathers(evidence)
    lost = [event for event in every if event["loses_gradient"]]
    if lost:
        return broken(
            f"a tensor that needs a gradient is gathered at {lost[0]['line']}",
            causes.GATHERED_WITHOUT_GRADIENT(operation=lost[0]["op"], line=lost[0]["line"]),
        )
    return held() if every else not_judged("the script gathers nothing")


def gradients_depend_on_the_data(evidence: Evidence) -> LawVerdict:
    steps = [event for event in evidence.real.of(0, "step") if looked_at(event)]
    if not steps:
        return not_judged("no optimizer step was seen")
    for event in steps:
        if not event["finite"]:
            cause = causes.GRADIENTS_NOT_FINITE(step=event["step"], line=backward_line(evidence, event["step"]))
            return broken(f"gradients are not finite in step {event['step']}", cause)
    for optimizer in {event["optimizer"] for event in steps}:
        own = [event for event in steps if event["optimizer"] == optimizer]
        if all(event["zero"] for event in own):
            where = backward_line(evidence, own[0]["step"])
            if _lost_before_the_step(own):
                how = "Parts of split parameters get theirs in a reduction." if _is_split(evidence) else ""
                cause = causes.GRADIENTS_LOST(line=own[0]["line"], backward=where, how=how)
                return broken(f"the optimizer has no gradient in {counted(len(own), 'step')}", cause)
            cause = causes.GRADIENTS_ALL_ZERO(line=where)
            return broken(f"every gradient is zero in {counted(len(own), 'step')}", cause)
    found = constant_gradients(evidence)
    return held() if found is None else broken(*found)


def _clip_own(evidence: Evidence, together: Sequence[Event]) -> bool:
    """Whether each rank clips the parameters of its own optimizer, and they are fewer than those of all ranks."""
    own = [len(names) for names in evidence.names_of_rank]
    every = {name for names in evidence.names_of_rank for name in names.values()}
    return all(0 < len(event["digests"]) <= count < len(every) for event, count in zip(together, own, strict=True))


def _lost_before_the_step(steps: Sequence[Event]) -> bool:
    """Whether backward passes computed gradients, and no parameter has one when its optimizer steps."""
    recorded = [event for event in steps if any(event["parts"])]
    return bool(recorded) and not any(any(event["grads"]) for event in steps)


def _is_split(evidence: Evidence) -> bool:
    return bool(evidence.real.of(0, "gathered", "sharded"))


def clipping_comes_last(evidence: Evidence) -> LawVerdict:
    """Gradients must be clipped after the reduction, once in each step."""
    clips = evidence.each_rank("clip")
    if not any(clips):
        return not_judged("the script does not clip by torch.nn.utils")
    if evidence.sharded:
        return not_judged(evidence.sharded)
    if gradients_are_in_flight(evidence):
        return not_judged(_NOT_AWAITED)
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
                if evidence.dealt_out and not set(seen[0]).intersection(*seen[1:]) and _clip_own(evidence, together):
                    cause = causes.CLIP_BY_OWN_PART(norms=shown, line=line)
                    return broken(f"the ranks clip different parameters in step {step}, each by its own norm", cause)
                if _unsynchronised(evidence, step):
                    continue
                cause = causes.CLIP_BEFORE_REDUCTION(norms=shown or "of the gradients", line=line)
                return broken(f"the ranks clip different gradients in step {step}", cause)
            if len(norms) == len(together) and max(norms) - min(norms) > CLOSE * max(norms):
                cause = causes.CLIP_BY_OWN_PART(norms=shown, line=line)
                return broken(f"the ranks clip equal gradients by different norms in step {step}", cause)
    return held()
