"""Hypotheses about a wrong loss, each with the loss that it would give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from ..causes import Cause
from ..causes import gradients as causes
from ..models.spec import Tensor
from ..oracle.network import evaluate
from ..oracle.origins import Losses
from ..oracle.passes import Pass
from ..seeded_values import Array
from .arrays import Alternatives
from .gradients.auxiliary_terms import losses_lacking_terms
from .gradients.sample_weights import losses_weighed_wrong


def of_losses(origin: Losses) -> Alternatives:
    """The losses of all ranks by each mistake."""
    forward, losses, case = origin.forward, origin.losses, origin.case
    tensors = case.described.values()
    initial = () if origin.trained else losses_of_initial_values(forward, case.given(), tensors)
    unloaded = losses_of_unloaded_values(forward, case.job.initial_of_resumed(0), tensors) if origin.resumed else ()
    return (
        *losses_lacking_terms(forward, losses),
        *losses_gone_wrong(losses, forward.shards.counts),
        *losses_weighed_wrong(forward, losses),
        *initial,
        *unloaded,
    )


def losses_gone_wrong(losses: Array, counts: Array) -> Alternatives:
    """losses: every rank's own, shape (ranks,)."""
    everybody = np.full_like(losses, losses.mean())
    summed = np.full_like(losses, losses.sum())
    return (
        (causes.LOSS_AVERAGED(), everybody),
        (causes.LOSS_SUMMED(), summed),
        (causes.LOSS_SUMMED_OVER_SAMPLES(), losses * counts),
    )


def losses_of_initial_values(
    forward: Pass, initial: Mapping[str, Array], described: Iterable[Tensor]
) -> Iterator[tuple[Cause, Array]]:
    """Those of ranks that construction left with other values than rank 0's. initial: each rank's own."""
    for what, given in _kinds(initial, described):
        mean = {name: np.broadcast_to(array.mean(axis=0), array.shape) for name, array in given.items()}
        yield causes.LOSS_OF_OWN_INITIAL(values=what), _with(forward, given)
        yield causes.LOSS_OF_MEAN_INITIAL(values=what), _with(forward, mean)


def losses_of_unloaded_values(
    forward: Pass, initial: Mapping[str, Array], described: Iterable[Tensor]
) -> Iterator[tuple[Cause, Array]]:
    """Those of a forward pass that still uses the values from the new replica's construction. initial: rank 0's."""
    everywhere = {name: array[None] for name, array in initial.items() if array.dtype.kind == "f"}
    for what, given in _kinds(everywhere, described):
        values = {
            name: np.repeat(array.astype(np.float64), len(forward.shards.counts), axis=0)
            for name, array in given.items()
        }
        yield causes.LOSS_OF_UNLOADED(values=what), _with(forward, values)


def _kinds(initial: Mapping[str, Array], described: Iterable[Tensor]) -> Iterator[tuple[str, Mapping[str, Array]]]:
    roles = {tensor.name: tensor.role for tensor in described}
    kinds = (
        ("frozen parameters", ("frozen",)),
        ("buffers", ("buffer",)),
        ("parameters", ("learned", "frozen")),
        ("parameters and buffers", ("learned", "frozen", "buffer")),
    )
    for what, chosen in kinds:
        yield what, {name: array for name, array in initial.items() if roles[name] in chosen}


def _with(forward: Pass, values: Mapping[str, Array]) -> Array:
    """The losses with some tensors in place of others."""
    learned = {name: values.get(name, array) for name, array in forward.learned.items()}
    fixed = {name: values.get(name, array) for name, array in forward.fixed.items()}
    return evaluate(forward.model, learned, fixed, forward.shards).losses
