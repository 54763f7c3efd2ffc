"""The expected results of an Observe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .bounded_values import Value
from .expected_values import ExpectedArray
from .gradients import Gradients, Presence
from .history import History
from .job_constants import Case
from .origins import Accumulated, Origin


def gradients_shown(
    case: Case,
    gradients: Gradients,
    zeros: Mapping[str, Value],
    frozen: Iterable[str],
    history: History,
    *,
    trained: bool,
) -> dict[str, ExpectedArray]:
    """zeros: of the shape of every parameter. frozen: parameters of layers that are not trained now, but were or will
    be. trained: whether a step or a loaded state came before.
    """
    none: Presence = "none"
    weighted = case.promised.replica.uneven_batches == "weighted"
    by_weight = case.promised.replica.sample_weights == "by_weight"
    exact = {name: zeros[name].exact for name in gradients.of}
    shown = {}
    for name, gradient in gradients.of.items():
        inside = gradient.pending is not None
        origin = None
        if history.knows(name):
            shared = case.uses(name) > 1
            origin = Accumulated(
                name, history, exact, case.described[name].dtype, shared, inside, weighted, gradients.clipped, by_weight,
                None if trained else case,
            )  # fmt: skip
        value = gradients.sum(name) or zeros[name]
        presence = gradients.presence(name)
        shown[name] = ExpectedArray(value, case.described[name].dtype, presence, case.everyone, not inside, origin)
    return shown | {
        name: ExpectedArray(zeros[name], case.described[name].dtype, (none,) * len(case.everyone), case.everyone)
        for name in frozen
    }


def tensors_shown(
    case: Case, values: Mapping[str, Value], origins: Mapping[str, Origin], *, apart: bool
) -> dict[str, ExpectedArray]:
    """Parameters, their averages, or buffers. apart: whether running statistics differ between ranks."""
    there: Presence = "there"
    shown = {}
    for name, value in values.items():
        moved = apart and ".running_" in name
        ranks = (0,) if moved else case.everyone
        dtype, alike = case.described[name].dtype, case.equal_on_ranks(name) and not moved
        shown[name] = ExpectedArray(value, dtype, (there,) * len(case.everyone), ranks, alike, origins.get(name))
    return shown
