"""Why a gradient is not that of one process: told by the ranks' weights in it, by its factor, and by what the script calls."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from ...causes import Cause
from ...causes.audit import gradients as causes
from ..evidence import Evidence, StepSeen
from .batch_source import batches_recognised
from .class_weights import divided_by_own_weights
from .constants import carried_value_of_each_rank, constant_of_each_rank
from .gathered_targets import gathers, own_features_misplaced, targets_not_shifted, targets_shifted_by_other_rows
from .law import LawVerdict, broken, held, not_judged
from .loss_terms import first_apart, term_apart
from .loss_ways import losses_computed_apart
from .losses import CLOSE, divided_by_own_number, lost_in_the_loss, near
from .overwritten_values import own_values_overwritten
from .replicas import untrained_model_apart
from .statistics import statistic_of_parts

_UNRECOGNISED = "how the script forms its batches was not recognised; mark them with ddpcheck.audit.batch()"


def difference_from_one_process(evidence: Evidence, usable: list[StepSeen], off: list[StepSeen]) -> LawVerdict:
    """The verdict on gradients of which some differ. usable: the compared steps; off: those of them that differ."""
    ranks = evidence.ranks
    first = off[0]
    line = backward_line(evidence, first.step)
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
        return _scaled(evidence, scaled, first, headline, details)
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
    if by_rows := targets_shifted_by_other_rows(evidence, first.step):
        return broken(headline, by_rows, details=details)
    if misplaced := own_features_misplaced(evidence, first.step):
        return broken(headline, misplaced, details=details)
    if all(near(v, first.v[0]) for v in first.v) and first.w_off <= 1 and first.w:
        if _one_rank_only(first.w):
            return not_judged(f"the run as one process saw one rank's samples only: {_UNRECOGNISED}")
        return broken(headline, _normalised_per_rank(evidence, first, _shown(first.v), line), details=details)
    if first.w and first.w_off <= 1 and not all(near(v, first.v[0]) for v in first.v) and not _one_rank_only(first.w):
        weighted = causes.RANKS_WEIGHTED(
            got=_shown(first.v), wanted=_shown(first.w[0]), line=_reduction_line(evidence, first, line)
        )
        nothing = any(abs(v) < CLOSE for v in first.v)
        cause = (losses_computed_apart(evidence, first.step) if nothing else None) or weighted
        return broken(headline, cause, details=details)
    if not batches_recognised(evidence) and not _sees_updates(evidence):
        return not_judged(_UNRECOGNISED)
    # the rank's own features, put among those of detached ones, have a gradient
    own = {event["step"] for event in evidence.real.of(0, "own_place")}
    lost = [event for event in gathers(evidence) if event["loses_gradient"] or event["step"] in own]
    if lost:
        cause = causes.GATHERED_WITHOUT_GRADIENT(operation=lost[0]["op"], line=lost[0]["line"])
        return broken(headline, cause, details=details)
    if changed := _changed_by_a_hook(evidence, first.step):
        return broken(headline, changed, details=details)
    if of_parts := statistic_of_parts(evidence, first.step):
        return broken(headline, of_parts, details=details)
    if of_each_rank := constant_of_each_rank(evidence):
        return broken(headline, of_each_rank, _coupled(evidence, first, line), details=details)
    if carried := carried_value_of_each_rank(evidence, first.step):
        return broken(headline, carried, details=details)
    if overwritten := own_values_overwritten(evidence, first.step):
        return broken(headline, overwritten, details=details)
    if of_term := term_apart(evidence, first):
        return broken(headline, of_term, details=details)
    if module := untrained_model_apart(evidence, first.step):
        return not_judged(f"the ranks use different parameters of {module}, which no optimizer trains")
    if first.order_matters:
        return not_judged(
            f"one process's gradient in step {first.step} depends on the order of the samples, as where a batch has one task"
        )
    cause = losses_computed_apart(evidence, first.step) or _coupled(evidence, first, line)
    return broken(headline, cause, details=details)


def _coupled(evidence: Evidence, step: StepSeen, line: str) -> Cause:
    at = step.value_apart or first_apart(evidence, step) or f"the loss before {line}"
    return causes.LOSS_COUPLES_SAMPLES(line=at)


def _scaled(
    evidence: Evidence, steps: list[StepSeen], first: StepSeen, headline: str, details: tuple[str, ...]
) -> LawVerdict:
    """All gradients are those of one process, times one factor. first: the first step whose gradients differ."""
    ranks, factor, line = evidence.ranks, first.factor_one, backward_line(evidence, first.step)
    if near(factor, 1 / ranks) and (
        (all(near(v, 1 / ranks) for v in first.v) and _all_near(first.w, 1.0))
        or (_sees_updates(evidence) and near(first.factor_all, 1 / ranks) and first.factor_all_off <= 1)
    ):
        if cause := lost_in_the_loss(evidence, [step.step for step in steps], line):
            return broken(headline, cause, details=details)
        if _divided_twice(evidence, steps):
            return broken(headline, causes.LOSS_DIVIDED_TWICE(ranks=ranks, line=line), details=details)
        return held(
            observation=f"every gradient is 1/{ranks} of one process's: the loss is a sum over samples and the ranks' "
            "gradients are averaged. This is right if the learning rate is meant so"
        )
    if near(factor, ranks) and all(near(v, 1.0) for v in first.v):
        if _sees_updates(evidence):
            details += (f"a learning rate that is multiplied by {ranks}, the world size, looks the same here",)
        elif evidence.real.of(0, "wrapped") and not _reduction_line(evidence, first, ""):
            at = next(event["line"] for event in evidence.real.of(0, "step") if event["step"] == first.step)
            cause = causes.GRADIENTS_MULTIPLIED_AFTERWARDS(factor=factor, backward=line, line=at)
            return broken(headline, cause, details=details)
        return broken(headline, causes.GRADIENTS_SUMMED(factor=factor, ranks=ranks), details=details)
    if ranks > 1 and near(factor, 1 / ranks) and all(near(v, 1 / ranks**2) for v in first.v):
        cause = causes.GRADIENTS_DIVIDED_TWICE(ranks=ranks, line=_reduction_line(evidence, first, line))
        return broken(headline, cause, details=details)
    return broken(headline, causes.GRADIENTS_SCALED(factor=factor, weights=_shown(first.v), line=line), details=details)


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
        and all(near(step.factor_one, 1 / evidence.ranks) and near(step.factor_all, 1.0) for step in steps)
        and all(step.factor_all_off <= 1 and _all_near(step.w, 1.0) for step in steps)
        and all(near(v, 1 / evidence.ranks) for step in steps for v in step.v)
        and rates[0] == rates[1]
    )


def _sees_updates(evidence: Evidence) -> bool:
    """Whether updates are compared instead of gradients, as in NumPy scripts, whose optimizers show no gradients."""
    return any(event["backend"] == "mpi" for event in evidence.real.of(0, "world"))


def _changed_by_a_hook(evidence: Evidence, step: int) -> Cause | None:
    """The cause, if a hook of the script changed gradients by this step, by other factors on other ranks."""
    for together in evidence.aligned("gradient_hook"):
        factors = [tuple(event["factors"]) for event in together]
        if together[0]["step"] <= step and len({event["line"] for event in together}) == 1 and len(set(factors)) > 1:
            shown = " | ".join(f"{least:.4g} to {largest:.4g}" for least, largest in factors)
            return causes.GRADIENT_CHANGED_BEFORE(line=together[0]["line"], factors=shown)
    return None


def _normalised_per_rank(evidence: Evidence, step: StepSeen, got: str, line: str) -> Cause:
    known = divided_by_own_weights(evidence, step) or divided_by_own_number(evidence, step, line)
    return known or causes.LOSS_NORMALISED_PER_RANK(wanted=_shown(step.w[0]), got=got, line=line)


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
    if step.micro_batches:
        return causes.MICRO_BATCHES_WEIGHTED(weights=_shown(step.micro_batches), line=line)
    if step.part_factors:
        return causes.PARTS_SCALED_APART(factors=_shown(step.part_factors), line=together[0]["line"])
    return causes.REDUCTION_IS_NO_COMBINATION(parameter=evidence.name(wrong), line=line)


def _reduction_line(evidence: Evidence, step: StepSeen, otherwise: str) -> str:
    """The line of the first collective after a backward of this step, if there is one."""
    found = [e["line"] for e in evidence.real.of(0, "collective") if e["step"] == step.step and e["number"] > 0]
    return found[0] if found else otherwise


def backward_line(evidence: Evidence, step: int) -> str:
    found = [event["line"] for event in evidence.real.of(0, "backward") if event["step"] == step]
    return str(found[-1]) if found else ""


def _one_rank_only(weights: Sequence[Sequence[float]]) -> bool:
    return all(sum(abs(w) > CLOSE for w in each) == 1 for each in weights) and len(weights[0]) > 1


def _all_near(weights: Sequence[Sequence[float]], value: float) -> bool:
    return bool(weights) and all(near(w, value) for each in weights for w in each)


def _equal_weights(weights: Sequence[Sequence[float]]) -> bool:
    """Whether one process weights all ranks equally, in each backward of the window."""
    return all(near(w, each[0]) for each in weights for w in each)


def _mean(ranks: int) -> str:
    """The weights of a mean over ranks, which a communication hook computes."""
    return _shown((1 / ranks,) * ranks)


def _shown(weights: Sequence[float]) -> str:
    return ", ".join(f"{weight:.4g}" for weight in weights)


def _is_scaled(step: StepSeen) -> bool:
    """Whether the gradient is that of one process, times a factor."""
    return step.factor_one_off <= 1
