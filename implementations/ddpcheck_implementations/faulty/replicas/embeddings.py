"""Replicas that lose rows of an embedding's gradient."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ...numpy_network import Network
from ...numpy_network.layers import Embedding, Gradients, add
from ..base import PlainReplica
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.replicas import Made

EXACT = "check_gradients_equal_the_large_batch_exactly"


class _Changed(Embedding):
    def backward(self, dy: Array, gradients: Gradients) -> Array:
        gradient = np.zeros_like(self.weight)
        self.gather(gradient, dy)
        add(gradients, self._name, gradient)
        return dy

    def gather(self, gradient: Array, dy: Array) -> None:
        """Correct: add each sample's gradient to the row of its id."""
        np.add.at(gradient, self._ids, dy)


class _Replica(PlainReplica):
    """Replaces the class of embeddings."""

    embedding: type[_Changed] = _Changed

    def make_network(self, model: ModelSpec, initial: Mapping[str, Array]) -> Network:
        network = super().make_network(model, initial)
        for layer in network._layers:
            if isinstance(layer, Embedding):
                layer.__class__ = self.embedding
        return network


class _Once(_Changed):
    def gather(self, gradient: Array, dy: Array) -> None:
        gradient[self._ids] += dy


class _Padded(_Changed):
    """padding: the id whose row does not learn."""

    padding = 0

    def gather(self, gradient: Array, dy: Array) -> None:
        super().gather(gradient, dy)
        gradient[self.padding] = 0


class _PaddedLast(_Padded):
    padding = -1


# fmt: off
table(
    globals(),
    Fault("ids-of-a-batch-count-once",
          "An id that occurs several times in a batch adds to its embedding row only once.",
          where=always, effect=Made(_Replica, embedding=_Once),
          caught_by=EXACT, cause="repeated-id-counts-once"),
    Fault("id-0-is-padding", "Embedding row 0 gets no gradient, as if id 0 were padding.",
          where=always, effect=Made(_Replica, embedding=_Padded),
          caught_by=EXACT, cause="id-taken-for-padding"),
    Fault("last-id-is-padding", "The last embedding row gets no gradient, as if its id were padding.",
          where=always, effect=Made(_Replica, embedding=_PaddedLast),
          caught_by=EXACT, cause="id-taken-for-padding"),
)
# fmt: on
