"""The contract between ddpcheck and an implementation: the interfaces that a third party implements. No subclassing is needed.

An `Adapter` has a name, promises (Capabilities), a Launcher that starts the ranks, and a function `connect`. Every rank calls
`connect` once; it returns the `Facets` that the implementation offers on that rank. A facet is any object with the methods of
its Protocol below (trainer.py has the trainer's). Leave out a facet that the implementation lacks, and its group of promises in
Capabilities.

    def connect(context: RankContext) -> Facets:
        ring = MyRing(context.rank, context.world_size, context.master_addr, context.master_port)
        return Facets(rank=ring.rank, world_size=ring.size, collectives=ring, close=ring.shutdown)

    adapter = Adapter("my_ring", connect, Capabilities(collectives=CollectivePromises(operations={"all_reduce"}, ...)))

Arguments and results are NumPy arrays; a 0-d array may also be a NumPy scalar. A facet must not keep a reference to an
argument, and must not change one unless its method says so. connect() may change the process as it likes. Later calls change no
process setting, do not draw from the program's random generators (random, numpy.random, torch) and leave nothing behind. Only
make_replica may draw, as building a module does, but must not seed. An exception that a facet raises is recorded with its rank,
and is a failure unless a promise allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..launchers.launcher import Launcher
from ..launchers.processes import Processes
from ..seeded_values import Array
from . import Capabilities
from .rank_context import RankContext
from .trainer import Train

if TYPE_CHECKING:  # an adapter with collectives only imports in half the time
    from ..job import OptimizerSpec
    from ..models.spec import ModelSpec

Group = Sequence[int]
"""Ascending ranks. Only members call a collective of a group."""


@runtime_checkable
class Handle(Protocol):
    """A pending all_reduce."""

    def wait(self) -> Array:
        """Wait for the result, and return it."""
        ...


@runtime_checkable
class Collectives(Protocol):
    """Communication between ranks. Methods that CollectivePromises.operations does not name may be missing.

    Arrays may have any shape (0-d and zero elements included) and any strides, and may be read-only, except in recv().
    `group=None` means all ranks. Results are new arrays of the argument's shape and dtype, unless stated otherwise. Calls do not
    change their arguments, and one array may be passed to several calls, even pending ones. After a call, or wait(), has
    returned, the caller may overwrite the argument, and the result if it is writable (CollectivePromises.writable_results).
    Means of integers are not requested.
    """

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group | None = None) -> Array:
        """The element-wise reduction over the ranks: sum, mean, min, max (both propagate NaN) or prod. A mean is the sum divided
        by the number of ranks, or the sum of quotients. Infinities are summed as in one process.
        """
        ...

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group | None = None) -> Handle:
        """Like all_reduce, but returns at once. The array must not change before wait(), which all ranks call in one order."""
        ...

    def broadcast(self, array: Array, root: int = 0, *, group: Group | None = None) -> Array:
        """The root's array. Other ranks pass an array of equal shape and dtype; its values are ignored."""
        ...

    def all_gather(self, array: Array, *, group: Group | None = None) -> Array:
        """The arrays of all ranks stacked in rank order: shape (group size, *array.shape)."""
        ...

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group | None = None) -> Array:
        """This rank's block of the reduction: rows [k r, k (r + 1)) of the first dimension, which is k times group
        size.
        """
        ...

    def barrier(self, *, group: Group | None = None) -> None:
        """Return only after every rank of the group has entered."""
        ...

    def send(self, array: Array, dest: int) -> None:
        """Send to one rank; may return before the array is received."""
        ...

    def recv(self, array: Array, source: int) -> Array:
        """Receive an array of the shape and dtype of `array` from one rank, into it or a new one, and return that."""
        ...


@runtime_checkable
class Sampler(Protocol):
    """The sample indices of this rank, epoch after epoch. Seeds are integers of [0, 2^32)."""

    def set_epoch(self, epoch: int) -> None: ...

    def __iter__(self) -> Any:
        """This rank's indices for the current epoch (0 before the first set_epoch), as integers of [0, length)."""
        ...

    def __len__(self) -> int:
        """The number of indices that iteration yields."""
        ...


class MakeSampler(Protocol):
    def __call__(self, length: int, *, shuffle: bool, seed: int, drop_last: bool) -> Sampler: ...


@runtime_checkable
class Streams(Protocol):
    """Random numbers for training: local ones, as for dropout masks and noise, and common ones, as for dropped layers.

    Streams of different (seed, epoch, rank) are independent of each other and of the common stream.
    """

    def set_epoch(self, epoch: int) -> None:
        """Restart both streams for this epoch. A new Streams object starts in epoch 0."""
        ...

    def local(self, count: int) -> Array:
        """The next numbers of this rank's own stream: uniform floats of [0, 1), a new array of shape (count,)."""
        ...

    def common(self, count: int) -> Array:
        """The next numbers of the common stream, equal on all ranks, independent of local draws."""
        ...


class MakeStreams(Protocol):
    def __call__(self, seed: int) -> Streams: ...


@dataclass(frozen=True, slots=True)
class Batch:
    """A rank's shard of a batch: inputs (B, features) or ids (B,); targets (B, outputs) or labels (B,); B may be 0.

    weights (ReplicaPromises.sample_weights): the weight of each sample in the loss, shape (B,), in the model's dtype, never
    negative; a token mask has 0 and 1. The loss of the batch is then sum_i w_i l_i / sum_i w_i, times the model's loss_scale.
    If the weights sum to 0, the loss and its gradients are 0. None: all samples weigh equally.
    """

    inputs: Array
    targets: Array
    branches: tuple[str, ...] = ()
    weights: Array | None = None


@runtime_checkable
class Replica(Protocol):
    """This rank's copy of the model, wrapped for data-parallel training. Optional methods: ddpcheck.contract.optional_methods.

    Names and shapes are those of ModelSpec.tensors(). Results are read at once and may be views; a state() is kept, and must
    be a copy. All ranks call the same methods in the same order, so every method may communicate, for example to gather shards;
    only predict() may be called by one rank alone.
    """

    def backward(self, batch: Batch) -> float:
        """Forward and backward on the local batch; gradients accumulate. Returns the local mean loss (before
        reduction), including the model's auxiliary terms. A batch without samples has loss 0 and zero gradients.

        On return gradients() are synchronised over ranks, including those of earlier backwards in no_sync().
        """
        ...

    def no_sync(self) -> AbstractContextManager[Any]:
        """In this context backward accumulates local gradients and sends nothing. An engine that gathers sharded parameters in
        each forward cannot promise this. Contexts may be nested, and stay open while the replica predicts or saves. Leaving the
        outermost one ends no_sync without a reduction; the next backward reduces.
        """
        ...

    def zero_grad(self) -> None:
        """Forget all gradients, like torch with set_to_none=True: each is None until a backward makes a new one."""
        ...

    def clip(self, max_norm: float) -> float:
        """Scale all gradients by min(1, max_norm / norm); returns the norm over all gradients before scaling."""
        ...

    def step(self) -> None:
        """One optimizer update. Weight decay and momentum do not change a parameter whose gradient is None."""
        ...

    def gradients(self) -> Mapping[str, Array | None]:
        """The gradient of every learned parameter; None if it has none since zero_grad."""
        ...

    def parameters(self) -> Mapping[str, Array]:
        """Every parameter, frozen ones included."""
        ...

    def buffers(self) -> Mapping[str, Array]: ...

    def predict(self, batch: Batch) -> Array:
        """Outputs (B, outputs) in evaluation mode; no gradients. Any rank may call it alone, if predicts_alone is promised."""
        ...

    def state(self) -> Mapping[str, Array]:
        """Everything needed to resume: parameters and buffers by name, optimizer state under other names."""
        ...

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Load this rank's state() into a new replica. The state may contain only this rank's shard."""
        ...


class MakeReplica(Protocol):
    def __call__(
        self, model: ModelSpec | str, initial: Mapping[str, Array], optimizer: OptimizerSpec, options: Mapping[str, Any]
    ) -> Replica:
        """Build the model from this rank's initial values and wrap it.

        `model` is a name only if Adapter.named_models has it; `initial` is empty then. `options` are the user's
        command-line settings for this implementation, such as bucket_cap_mb; an unknown option should be a ValueError
        (`refuses_options`).
        """
        ...


class AggregateMetrics(Protocol):
    def __call__(self, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
        """The global means of local means over `count` samples each (a rank with count 0 is ignored), at least as precise as
        float32. All ranks get equal results, in a mapping that no later call changes. Names are any text, the same on all
        ranks, and in the same order unless MetricPromises.metrics_by_name is promised. Local means may be ints; the global mean
        keeps its fraction. Without samples on any rank the mean is NaN, or the mapping is empty.
        """
        ...


class ComputeScore(Protocol):
    def __call__(self, name: str, outputs: Array, targets: Array, indices: Array) -> float:
        """The score `name` (ScorePromises.score_names) over the samples of all ranks together, as in one process, from sums at
        least as precise as float32. All ranks get the same bits. Calls are stateless.

        This rank holds B samples, B may be 0: outputs (B, K) in float32, targets, and the samples' indices in the data set (B,),
        int64. All ranks pass the same name and K. Without samples on any rank the score is NaN.

        accuracy    the share of samples whose largest output is at the place of their label; targets are labels (B,), int64.
        f1_macro    the mean of 2 TP / (2 TP + FP + FN) over the classes that are the label or the largest output of a sample on
                    any rank; other classes do not count.
        perplexity  exp of the mean cross entropy, -log softmax(outputs)[label], natural logarithms.
        auc         for two classes: the share of pairs in which outputs[:, 1] - outputs[:, 0] is larger for the sample of class
                    1 than for that of class 0; ties count half. NaN if one class has no sample on any rank.
        rmse        the root of the mean of (outputs - targets)^2 over all samples and outputs; targets (B, K), float32.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Facets:
    """The facets of an implementation on one rank, and the rank and world size that it reports (the harness compares them).

    counts: "bytes" and "messages" sent to other ranks, and "collectives" started, on this rank since connect(). Bytes that
    another rank reads from shared memory count as sent. close: called once at the end on every rank, on some ranks earlier.
    Messages sent before close() still arrive; after it nothing may keep the process alive. lacks: promises of Capabilities that
    do not hold here, by name, each with its reason, such as "MyDDP has no no_sync()": their checks are skipped.
    """

    rank: int
    world_size: int
    collectives: Any = None
    make_sampler: MakeSampler | None = None
    make_replica: MakeReplica | None = None
    aggregate_metrics: AggregateMetrics | None = None
    compute_score: ComputeScore | None = None
    train: Train | None = None
    make_streams: MakeStreams | None = None
    counts: Callable[[], Mapping[str, int]] | None = None
    close: Callable[[], None] | None = None
    lacks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Adapter:
    """One implementation under test.

    requires: modules that must be importable for it to run. description: one line for listings. contract: the contract version
    for which it was written (ddpcheck.contract.CONTRACT is the present one). named_models: the models that make_replica builds by
    name, beside a ModelSpec; benchmarks and training runs use them, no check does. The object must be a module attribute,
    because ranks are other processes and import it.
    """

    name: str
    connect: Callable[[RankContext], Facets]
    capabilities: Capabilities = field(default_factory=Capabilities)
    launcher: Launcher = field(default_factory=Processes)
    requires: tuple[str, ...] = ()
    description: str = ""
    contract: int = 1
    named_models: frozenset[str] = frozenset()
