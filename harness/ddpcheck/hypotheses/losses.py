"""Hypotheses about a wrong loss, each with the loss that it predicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from ..causes import Cause, batch_norm, replicas
from ..causes import gradients as causes
from ..models.spec import BATCH_NORM_EPS, BatchNorm, Linear, ModelSpec, Tensor
from ..oracle.network import evaluate
from ..oracle.origins import Losses
from ..oracle.passes import Pass
from ..seeded_values import Array
from .arrays.evidence import WhatIf
from .gradients.auxiliary_terms import losses_lacking_terms
from .gradients.passes import at_values, kinds_of_values
from .gradients.sample_weights import losses_weighed_wrong

REPORTED_ONLY = frozenset(
    kind.id for kind in (causes.LOSS_AVERAGED, causes.LOSS_SUMMED, causes.LOSS_SUMMED_OVER_SAMPLES)
)
"""Causes that follow from right losses of all ranks: the forward pass was right, and later values can be judged."""


def without_terms(origin: Losses) -> WhatIf:
    """Auxiliary terms are counted wrongly."""
    yield from losses_lacking_terms(origin.forward, origin.losses)


def combined_over_ranks(origin: Losses) -> WhatIf:
    """The losses of all ranks are averaged or summed, or each rank's is a sum over samples."""
    losses = origin.losses
    yield causes.LOSS_AVERAGED(), np.full_like(losses, losses.mean())
    yield causes.LOSS_SUMMED(), np.full_like(losses, losses.sum())
    yield causes.LOSS_SUMMED_OVER_SAMPLES(), losses * origin.forward.shards.counts


def by_other_sample_weights(origin: Losses) -> WhatIf:
    yield from losses_weighed_wrong(origin.forward, origin.losses)


def by_narrowed_ids(origin: Losses) -> WhatIf:
    """Ids or labels are stored in fewer bits. Negative ones count from the end."""
    shards, model = origin.forward.shards, origin.forward.model
    for what, given, size in (("Ids", shards.inputs, 0), ("Labels", shards.targets, _classes(model))):
        for dtype, bits in _FEWER_BITS if given.dtype.kind == "i" else ():
            with np.errstate(over="ignore", invalid="ignore"):
                stored = given.astype(dtype)
            narrow = np.where(np.isfinite(stored), stored, given).astype(given.dtype)
            if np.array_equal(narrow, given):
                continue
            if what == "Ids":
                changed = replace(shards, inputs=narrow)
            else:
                changed = replace(shards, targets=np.where(narrow < 0, narrow + size, narrow))
            losses = evaluate(model, origin.forward.learned, origin.forward.fixed, changed).losses
            yield replicas.IDS_NARROWED(what=what, bits=(bits,)).but("likely"), losses


_FEWER_BITS = (("int8", 7), ("uint8", 8), ("float16", 11), ("int16", 15), ("uint16", 16))
"""Types, and the bits of the smallest whole number that each changes."""


def _classes(model: ModelSpec) -> int:
    return next((layer.outputs for layer in reversed(model.layers) if isinstance(layer, Linear)), 0)


def by_other_eps(origin: Losses) -> WhatIf:
    """Batch norm has another eps."""
    forward = origin.forward
    if not any(isinstance(layer, BatchNorm) for layer in forward.model.layers):
        return
    for eps in _OTHER_EPS:
        shards = replace(forward.shards, eps=eps)
        losses = evaluate(forward.model, forward.learned, forward.fixed, shards).losses
        yield batch_norm.OTHER_EPS(eps=eps, right=BATCH_NORM_EPS), losses


_OTHER_EPS = (1e-3, 1e-4, 1e-6, 1e-8, 1e-12)
"""Defaults of frameworks, and numbers that people choose."""


def by_initial_values(origin: Losses) -> WhatIf:
    """Construction left ranks with other values than rank 0's, and no step followed."""
    if not origin.trained:
        yield from losses_of_initial_values(origin.forward, origin.case.given(), origin.case.described.values())


def by_unloaded_values(origin: Losses) -> WhatIf:
    """A loaded state is not used."""
    if origin.resumed:
        initial = origin.case.job.initial_of_resumed(0)
        yield from losses_of_unloaded_values(origin.forward, initial, origin.case.described.values())


def losses_of_initial_values(
    forward: Pass, initial: Mapping[str, Array], described: Iterable[Tensor]
) -> Iterator[tuple[Cause, Array]]:
    """Losses of ranks that construction left with other values than rank 0's. initial: each rank's own."""
    for what, given in kinds_of_values(initial, described):
        mean = {name: np.broadcast_to(array.mean(axis=0), array.shape) for name, array in given.items()}
        yield causes.LOSS_OF_OWN_INITIAL(values=what), at_values(forward, given).losses
        yield causes.LOSS_OF_MEAN_INITIAL(values=what), at_values(forward, mean).losses


def losses_of_unloaded_values(
    forward: Pass, initial: Mapping[str, Array], described: Iterable[Tensor]
) -> Iterator[tuple[Cause, Array]]:
    """Losses of a forward pass that still uses the values from the new replica's construction. initial: rank 0's."""
    everywhere = {name: array[None] for name, array in initial.items() if array.dtype.kind == "f"}
    for what, given in kinds_of_values(everywhere, described):
        values = {
            name: np.repeat(array.astype(np.float64), len(forward.shards.counts), axis=0)
            for name, array in given.items()
        }
        yield causes.LOSS_OF_UNLOADED(values=what), at_values(forward, values).losses
