"""What the loss of a backward would be if something specific had gone wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from ..model import Tensor
from ..values import Array
from .moments import Alternatives
from .network import evaluate
from .shares import Pass


def losses_gone_wrong(losses: Array, counts: Array) -> Alternatives:
    """losses: every rank's own, shape (ranks,)."""
    everybody = np.full_like(losses, losses.mean())
    summed = np.full_like(losses, losses.sum())
    return (
        ("it is the mean over all ranks, but should be this rank's own, before reduction", everybody),
        ("it is the sum over all ranks, but should be this rank's own, before reduction", summed),
        ("it is the sum over the rank's samples, but should be their mean", losses * counts),
    )


def losses_of_initial_values(
    forward: Pass, initial: Mapping[str, Array], described: Iterable[Tensor]
) -> Iterator[tuple[str, Array]]:
    """Those of ranks that construction left with other values than rank 0's. initial: what each rank was given."""
    for words, given in _kinds(initial, described):
        mean = {name: np.broadcast_to(array.mean(axis=0), array.shape) for name, array in given.items()}
        for values, sentence in (
            (given, f"it is that of this rank's own initial {words}: construction did not give it rank 0's"),
            (mean, f"it is that of the mean of all ranks' initial {words}, but construction should give it rank 0's"),
        ):
            yield sentence, _with(forward, values)


def losses_of_unloaded_values(
    forward: Pass, initial: Mapping[str, Array], described: Iterable[Tensor]
) -> Iterator[tuple[str, Array]]:
    """Those of a forward pass that still uses what the new replica was made with. initial: rank 0's."""
    everywhere = {name: array[None] for name, array in initial.items() if array.dtype.kind == "f"}
    for words, given in _kinds(everywhere, described):
        values = {
            name: np.repeat(array.astype(np.float64), len(forward.shards.counts), axis=0)
            for name, array in given.items()
        }
        yield f"it is that of the new replica's initial {words}: {_UNLOADED}", _with(forward, values)


_UNLOADED = "load_state did not load them, or forward uses a copy of them that was made before"


def _kinds(initial: Mapping[str, Array], described: Iterable[Tensor]) -> Iterator[tuple[str, Mapping[str, Array]]]:
    roles = {tensor.name: tensor.role for tensor in described}
    kinds = (
        ("frozen parameters", ("frozen",)),
        ("buffers", ("buffer",)),
        ("parameters", ("learned", "frozen")),
        ("parameters and buffers", ("learned", "frozen", "buffer")),
    )
    for words, chosen in kinds:
        yield words, {name: array for name, array in initial.items() if roles[name] in chosen}


def _with(forward: Pass, values: Mapping[str, Array]) -> Array:
    """The losses with some tensors in place of others."""
    learned = {name: values.get(name, array) for name, array in forward.learned.items()}
    fixed = {name: values.get(name, array) for name, array in forward.fixed.items()}
    return evaluate(forward.model, learned, fixed, forward.shards).losses
