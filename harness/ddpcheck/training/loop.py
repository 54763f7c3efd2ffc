"""The training loop of all implementations, which uses only the facets of adapter.py.

Accumulation of k micro-batches gives k times the mean gradient, since gradients add up; an engine that sums over ranks
gives another factor. The optimizer removes the factor: SGD with lr / k, and Adam with k eps and clipping at k max_norm,
take exactly the steps of the mean gradient. So the loss is not changed, and models that the implementation builds by
name train like declared ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..contract import Capabilities, ReplicaMethod, ReplicaSync
from ..contract.adapter import Batch, Facets, Replica, Sampler
from ..job import OptimizerSpec
from ..models.spec import ModelSpec
from ..seeded_values import Array
from . import checkpoint as files
from .checkpoint import Checkpoint
from .datasets import DataSet, Samples
from .initial_values import initial_values
from .one_process import STEPS, FirstSteps
from .plan import TrainingPlan, windows
from .rank_messages import RankExchange, TrainingFailed

_EVALUATED_AT_ONCE = 512


@dataclass(frozen=True)
class Epoch:
    """The result of one epoch over all ranks. `number` counts from 1; `samples` were trained on in `seconds`."""

    number: int
    loss: float
    train_accuracy: float
    test_accuracy: float
    samples: int
    seconds: float


class ProgressObserver(Protocol):
    """Receives the progress of training."""

    def epoch(self, number: int, steps: int) -> AbstractContextManager[Callable[[], object]]:
        """A context around an epoch's steps; yields a function that is called after each step."""
        ...

    def done(self, epoch: Epoch) -> None: ...


class NoObserver:
    """An observer that does nothing, for all ranks but rank 0."""

    @contextmanager
    def epoch(self, number: int, steps: int) -> Iterator[Callable[[], object]]:
        yield lambda: None

    def done(self, epoch: Epoch) -> None:
        pass


@dataclass
class Trained:
    """The result of a run. orders: for each epoch from the first, the samples of every rank, (ranks, samples)."""

    model: ModelSpec | str
    parameters: dict[str, Array]
    orders: list[npt.NDArray[np.int64]] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    differing: list[int] = field(default_factory=list)  # ranks whose parameters differ from rank 0's in any bit
    has_statistics: bool = False  # of batch norm; each rank has its own
    first: FirstSteps | None = None  # for a model that only the implementation can build


@dataclass(frozen=True)
class Training:
    """A plan, on one rank of an implementation."""

    plan: TrainingPlan
    capabilities: Capabilities
    facets: Facets
    data: DataSet
    watcher: ProgressObserver

    @property
    def ranks(self) -> RankExchange:
        assert self.facets.aggregate_metrics is not None
        return RankExchange(self.facets.rank, self.facets.world_size, self.facets.aggregate_metrics)

    def run(self) -> Trained:
        """Train all epochs. Every rank calls it, and all get the same numbers."""
        plan, ranks = self.plan, self.ranks
        start = self._resumed()
        replica = self._replica(start.epoch, start.state)
        sampler = self._sampler()
        trained = Trained(plan.model_for(self.data), {})
        recorded = plan.compare and not plan.is_named
        if recorded:
            # a resumed run is compared as a whole, so the orders of its earlier epochs are needed, too
            trained.orders += [ranks.gather(self._shard(sampler, epoch).tolist()) for epoch in range(start.epoch)]
        for epoch in range(start.epoch, plan.last_epoch):
            if epoch > start.epoch and self._learning_rate(epoch) != self._learning_rate(epoch - 1):
                replica = self._replica(epoch, replica.state())
            shard = self._shard(sampler, epoch)
            if recorded:
                trained.orders.append(ranks.gather(shard.tolist()))
            early: dict[str, Array] = {}
            done = self._epoch(
                replica, shard, epoch, early if plan.compare and plan.is_named and not trained.epochs else None
            )
            if early:
                order = ranks.gather(shard.tolist())
                trained.first = FirstSteps(self._learning_rate(epoch), start.state, order, early)
            if plan.checkpoint is not None:
                self._save(Path(plan.checkpoint), replica, epoch + 1)
            trained.epochs.append(done)
            self.watcher.done(done)
        trained.parameters = dict(replica.parameters())
        trained.has_statistics = any(name.endswith("running_mean") for name in replica.buffers())
        trained.differing = ranks.differing(trained.parameters)
        return trained

    # ----------------------------------------------------------------------------------------------------------- parts

    def _learning_rate(self, epoch: int) -> float:
        return self.plan.learning_rate(epoch, self.facets.world_size)

    @property
    def _factor(self) -> int:
        """The gradients of a step are this many times the mean gradient of its samples."""
        return self.plan.accumulation * (self.facets.world_size if self.capabilities.replica.gradient == "sum" else 1)

    def _optimizer(self, epoch: int) -> OptimizerSpec:
        return self.plan.optimizer_for(self._learning_rate(epoch), self._factor)

    def _replica(self, epoch: int, state: Any) -> Replica:
        """A replica with the learning rate of this epoch, which continues from `state`, if given."""
        assert self.facets.make_replica is not None
        model = self.plan.model_for(self.data)
        # without a broadcast from rank 0, all ranks start from its values
        rank = self.facets.rank if self.capabilities.replica.replica_sync >= ReplicaSync.PARAMETERS else 0
        initial = {} if isinstance(model, str) else initial_values(model, self.plan.seed, rank)
        replica = self.facets.make_replica(model, initial, self._optimizer(epoch), dict(self.plan.options))
        if state:
            with self.ranks.together("loading the state of the replica"):
                replica.load_state(state)
        return replica

    def _sampler(self) -> Sampler:
        assert self.facets.make_sampler is not None
        # shards of unequal length would have different numbers of steps, and wrong weights in a mean over ranks
        drop_last = self.capabilities.sampler.remainder == "uneven"
        return self.facets.make_sampler(len(self.data.train), shuffle=True, seed=self.plan.seed, drop_last=drop_last)

    def _shard(self, sampler: Sampler, epoch: int) -> npt.NDArray[np.int64]:
        """This rank's samples in an epoch. TrainingFailed if the ranks' numbers differ, or are too small."""
        sampler.set_epoch(epoch)
        shard = np.fromiter(sampler, np.int64)
        lengths = self.ranks.gather([len(shard)])[:, 0]
        if (lengths != len(shard)).any():
            raise TrainingFailed(f"the sampler gives the ranks {lengths.tolist()} samples, which must be equally many")
        if len(shard) < self.plan.accumulation:
            raise TrainingFailed(
                f"{len(shard)} samples on each rank cannot fill {self.plan.accumulation} micro-batches; accumulate less"
            )
        return shard

    def _resumed(self) -> Checkpoint:
        plan, world_size = self.plan, self.facets.world_size
        if not plan.resume or plan.checkpoint is None:
            return Checkpoint(plan, world_size, 0, {})
        with self.ranks.together("reading the checkpoint"):
            return files.fitting(files.load(Path(plan.checkpoint)), plan, world_size)

    def _save(self, path: Path, replica: Replica, epoch: int) -> None:
        state = replica.state()  # on every rank: an implementation with a sharded state must communicate
        with self.ranks.together("saving the checkpoint"):
            if self.facets.rank == 0:
                files.save(path, Checkpoint(self.plan, self.facets.world_size, epoch, state))

    def _epoch(
        self, replica: Replica, shard: npt.NDArray[np.int64], epoch: int, early: dict[str, Array] | None
    ) -> Epoch:
        """Train one epoch. early: receives the parameters after the first steps."""
        started = time.perf_counter()
        steps = windows(len(shard), self.plan.batch_size, self.plan.accumulation)
        total, count = 0.0, 0
        with self.watcher.epoch(epoch + 1, len(steps)) as step_done:
            for number, parts in enumerate(steps, start=1):
                total += self._step(replica, [shard[part] for part in parts])
                if early is not None and number == min(STEPS, len(steps)):
                    early.update({name: np.array(array) for name, array in replica.parameters().items()})
                count += parts[-1].stop - parts[0].start
                step_done()
        loss = self._mean({"loss": total / count}, count)["loss"]
        seconds = time.perf_counter() - started
        return Epoch(
            epoch + 1,
            loss,
            self._accuracy(replica, self.data.train),
            self._accuracy(replica, self.data.test),
            count * self.facets.world_size,
            seconds,
        )

    def _step(self, replica: Replica, micro_batches: list[npt.NDArray[np.int64]]) -> float:
        """One optimizer step; the sum of the losses of its samples."""
        inputs, labels = self.data.train.inputs, self.data.train.labels
        replica.zero_grad()
        total = 0.0
        for position, indices in enumerate(micro_batches):
            last = position == len(micro_batches) - 1
            quiet = not last and self.capabilities.has(ReplicaMethod.NO_SYNC)
            with replica.no_sync() if quiet else nullcontext():
                total += replica.backward(Batch(inputs[indices], labels[indices])) * len(indices)
        if self.plan.clip is not None:
            replica.clip(self.plan.clip * self._factor)
        replica.step()
        return total

    def _accuracy(self, replica: Replica, samples: Samples) -> float:
        """The accuracy over all ranks. Every sample counts once: shards may be uneven, without padding, weighted by
        their counts.
        """
        mine = np.arange(self.facets.rank, len(samples), self.facets.world_size)
        right = 0
        for start in range(0, len(mine), _EVALUATED_AT_ONCE):
            part = mine[start : start + _EVALUATED_AT_ONCE]
            outputs = replica.predict(Batch(samples.inputs[part], samples.labels[part]))
            right += int((outputs.argmax(axis=1) == samples.labels[part]).sum())
        return self._mean({"accuracy": right / max(len(mine), 1)}, len(mine))["accuracy"]

    def _mean(self, metrics: dict[str, float], count: int) -> dict[str, float]:
        assert self.facets.aggregate_metrics is not None
        return dict(self.facets.aggregate_metrics(metrics, count))
