"""Training with ranks as threads of this process, on a fifth of digits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from in_threads import Table, ThreadCollectives

from ddpcheck.contract import Capabilities
from ddpcheck.contract.adapter import Facets
from ddpcheck.training.comparison import Comparison, compare
from ddpcheck.training.datasets import DataSet, Samples, digits
from ddpcheck.training.loop import NoObserver, Trained, Training
from ddpcheck.training.plan import TrainingPlan
from ddpcheck_implementations.data_parallel import numpy_facets
from ddpcheck_implementations.numpy_sockets import adapter as numpy_sockets

PROMISES = numpy_sockets.capabilities
PLAN = TrainingPlan(model="64-16-10", epochs=2, batch_size=40, dtype="float64")


def small_digits() -> DataSet:
    """A fifth of digits."""
    pytest.importorskip("sklearn", reason="digits come with scikit-learn")
    found = digits("float64")
    return DataSet("digits", Samples(found.train.inputs[:301], found.train.labels[:301]), found.test)


Wire = Callable[[Any, int, int], Facets]


def on_ranks(world_size: int, body: Callable[[ThreadCollectives, int], Any]) -> list[Any]:
    """The result or exception of `body` on every rank."""
    table = Table(world_size)
    results: list[Any] = [None] * world_size

    def one(rank: int) -> None:
        try:
            results[rank] = body(ThreadCollectives(table, rank), rank)
        except Exception as error:
            results[rank] = error
        finally:
            table.leave()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def train(
    plan: TrainingPlan, data: DataSet, world_size: int = 1, wire: Wire = numpy_facets, promises: Capabilities = PROMISES
) -> list[Any]:
    def body(collectives: ThreadCollectives, rank: int) -> Trained:
        return Training(plan, promises, wire(collectives, rank, world_size), data, NoObserver()).run()

    return on_ranks(world_size, body)


def trained(*arguments: Any, **settings: Any) -> Trained:
    """Rank 0's result, if all ranks completed."""
    results = train(*arguments, **settings)
    for result in results:
        if isinstance(result, Exception):
            raise result
    first: Trained = results[0]
    return first


def judged(plan: TrainingPlan, data: DataSet, run: Trained) -> Comparison:
    assert not isinstance(run.model, str)
    return compare(plan, run.model, data, run.orders, run.parameters)


def assert_same_bits(left: Trained, right: Trained) -> None:
    assert left.parameters.keys() == right.parameters.keys()
    for name, array in left.parameters.items():
        np.testing.assert_array_equal(array, right.parameters[name])
