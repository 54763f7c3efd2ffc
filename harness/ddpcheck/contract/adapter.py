"""The contract between ddpcheck and an implementation: all that a third party writes. Nobody subclasses anything.

An `Adapter` names an implementation, its promises (Capabilities) and the way its ranks start (a Launcher), and
has `connect`: called once in every rank, it returns the `Facets` that the implementation offers there. A facet is any
object with the methods of its Protocol below (trainer.py has the trainer's); leave out what there is not, and
give no promises of its group in Capabilities.

    def connect(context: RankContext) -> Facets:
        ring = MyRing(context.rank, context.world_size, context.master_addr, context.master_port)
        return Facets(rank=ring.rank, world_size=ring.size, collectives=ring, close=ring.shutdown)

    adapter = Adapter("my_ring", connect, Capabilities(collectives=CollectivePromises(operations=frozenset({"all_reduce"}), ...)))

Arrays are NumPy arrays in and out, 0-d ones or NumPy's scalars alike; a facet must not keep a reference to an argument, and
must not change one unless its method says so. What connect() does to the process is its own affair; the calls after it change
no setting, draw from none of the program's random numbers (random, numpy.random, torch's) and leave nothing behind; only
make_replica may draw, as building a module does, and does not seed. Any exception that a facet raises is recorded with its
rank, and is a failure unless a promise allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..launchers.base import Launcher
from ..launchers.processes import Processes
from ..seeded_values import Array
from . import Capabilities
from .rank_context import RankContext
from .trainer import Train

if TYPE_CHECKING:  # for who adapts collectives alone, half of the time that the import takes
    from ..job import OptimizerSpec
    from ..models.spec import ModelSpec

Group = Sequence[int]
"""Ascending ranks. Only members call a collective of a group."""


@runtime_checkable
class Handle(Protocol):
    """An all_reduce under way."""

    def wait(self) -> Array:
        """The result, once it is there."""
        ...


@runtime_checkable
class Collectives(Protocol):
    """Communication between ranks; a method that CollectivePromises.operations does not name may be missing.

    Arrays may have any shape (0-d and zero elements included) and any strides, and may be read-only, but for recv()'s.
    `group=None` means all ranks. Results are new arrays of the argument's shape and dtype, unless said otherwise; arguments
    stay as they were, so that several calls may be given one array, also at once. When a call returns, or wait() does, both are
    the caller's to overwrite, a result if it is writable (CollectivePromises.writable_results). No mean of integers is asked
    for.
    """

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group | None = None) -> Array:
        """The element-wise reduction over the ranks: sum, mean, min, max (both propagate NaN) or prod. A mean is the sum divided
        by the number of ranks, or the sum of quotients. Infinities add up as those of one process do.
        """
        ...

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group | None = None) -> Handle:
        """As all_reduce, but returns at once. The array must stay untouched until wait(), which all ranks call in one order."""
        ...

    def broadcast(self, array: Array, root: int = 0, *, group: Group | None = None) -> Array:
        """The root's array. Other ranks give one of equal shape and dtype, whose values do not matter."""
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
        """Send to one rank; may return before it was received."""
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
        """How many indices iteration gives."""
        ...


class MakeSampler(Protocol):
    def __call__(self, length: int, *, shuffle: bool, seed: int, drop_last: bool) -> Sampler: ...


@runtime_checkable
class Streams(Protocol):
    """Random numbers for training: dropout masks and noise are a rank's own, which layers to drop is common to all.

    Streams of different (seed, epoch, rank) are independent, and the common one is none of the ranks' own.
    """

    def set_epoch(self, epoch: int) -> None:
        """Begin the epoch's streams; a new Streams is at the beginning of epoch 0."""
        ...

    def local(self, count: int) -> Array:
        """The next numbers of this rank's own stream: uniform floats of [0, 1), a new array of shape (count,)."""
        ...

    def common(self, count: int) -> Array:
        """The next numbers of the stream that all ranks share, however many others a rank has drawn."""
        ...


class MakeStreams(Protocol):
    def __call__(self, seed: int) -> Streams: ...


@dataclass(frozen=True, slots=True)
class Batch:
    """A rank's shard of a batch: inputs (B, features) or ids (B,); targets (B, outputs) or labels (B,); B may be 0.

    weights (ReplicaPromises.sample_weights): how much each sample counts in the loss, shape (B,), in the model's dtype, never
    negative; those of a token mask are 0 and 1. The loss of the batch is then sum_i w_i l_i / sum_i w_i, times the model's
    loss_scale, and 0 with zero gradients where the weights add up to 0. None: all count the same.
    """

    inputs: Array
    targets: Array
    branches: tuple[str, ...] = ()
    weights: Array | None = None


@runtime_checkable
class Replica(Protocol):
    """This rank's copy of the model, wrapped for data-parallel training. Optional methods: ddpcheck.contract.extras.

    Names and shapes are those of ModelSpec.tensors(). Results are read at once and may be views; a state() is kept,
    and must be a copy. All ranks call the same methods in the same order, so that each may communicate, to gather what is
    sharded, say; only predict() may be called by one rank alone.
    """

    def backward(self, batch: Batch) -> float:
        """Forward and backward on the local batch; gradients accumulate. Returns the local mean loss (before
        reduction), the model's auxiliary terms included; a batch of no samples has loss 0 and zero gradients.

        On return gradients() are synchronised over ranks, those of earlier backwards in no_sync() included.
        """
        ...

    def no_sync(self) -> AbstractContextManager[Any]:
        """Within it backward only accumulates local gradients, and sends nothing: who gathers sharded parameters for each
        forward cannot promise it. It may be nested, and stay open while the replica predicts or saves: only leaving the
        outermost ends it, which reduces nothing: the next backward does.
        """
        ...

    def zero_grad(self) -> None: ...

    def clip(self, max_norm: float) -> float:
        """Scale all gradients by min(1, max_norm / norm); returns the norm over all gradients before."""
        ...

    def step(self) -> None:
        """One optimizer update. A parameter whose gradient is None stays as it is, weight decay and momentum
        included.
        """
        ...

    def gradients(self) -> Mapping[str, Array | None]:
        """Every learned parameter's gradient; None where there is none since zero_grad."""
        ...

    def parameters(self) -> Mapping[str, Array]:
        """Every parameter, frozen ones included."""
        ...

    def buffers(self) -> Mapping[str, Array]: ...

    def predict(self, batch: Batch) -> Array:
        """Outputs (B, outputs) in evaluation mode; no gradients. Any rank may call it alone, if predicts_alone is promised."""
        ...

    def state(self) -> Mapping[str, Array]:
        """All that a later run needs to go on: parameters and buffers by name, optimizer state under other names."""
        ...

    def load_state(self, state: Mapping[str, Array]) -> None:
        """On a new replica: load this same rank's state(), which may hold its shard only."""
        ...


class MakeReplica(Protocol):
    def __call__(
        self, model: ModelSpec | str, initial: Mapping[str, Array], optimizer: OptimizerSpec, options: Mapping[str, Any]
    ) -> Replica:
        """Build the model from this rank's initial values and wrap it.

        `model` is a name only if ReplicaPromises.named_models has it; `initial` is empty then. `options` are what a user
        set on the command line for this implementation (bucket_cap_mb, say); an unknown one should be a ValueError
        (`refuses_options`).
        """
        ...


class AggregateMetrics(Protocol):
    def __call__(self, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
        """Global means of local means over `count` samples each (0: no part in it), at least as precise as float32; all ranks
        get the same, in a mapping that no later call changes. Names are any text, the same on all ranks, and in the same
        order unless MetricPromises.metrics_by_name is promised. Local means may be ints; the global one has its fraction all
        the same. With no sample on any rank it is NaN, or the mapping is empty.
        """
        ...


class ComputeScore(Protocol):
    def __call__(self, name: str, outputs: Array, targets: Array, indices: Array) -> float:
        """The score `name` (ScorePromises.score_names) over the samples of all ranks together, as one process computes it that
        holds them all, from sums at least as precise as float32; all ranks get the same bits. No call minds those before.

        This rank holds B samples, perhaps none: outputs (B, K) in float32, targets, and which samples of the data set they are,
        indices (B,), int64. All ranks pass one name and one K. With no sample on any rank the score is NaN.

        accuracy    the share of samples whose largest output is at the place of their label; targets are labels (B,), int64.
        f1_macro    the mean of 2 TP / (2 TP + FP + FN) over the classes that are the label or the largest output of a sample of
                    any rank; classes that are neither anywhere do not count.
        perplexity  exp of the mean cross entropy, -log softmax(outputs)[label], natural logarithms.
        auc         of two classes: how often outputs[:, 1] - outputs[:, 0] is larger for a sample of class 1 than for one of
                    class 0, over all pairs; equal ones count half. NaN if one class has no sample on any rank.
        rmse        the root of the mean of (outputs - targets)^2 over all samples and outputs; targets (B, K), float32.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Facets:
    """The facets of an implementation on one rank, and its own idea of rank and world size (the harness compares).

    counts: "bytes" and "messages" sent to other ranks, and "collectives" begun, on this rank since connect(). Bytes that
    another rank reads from shared memory are sent as well. close: called once, at the end, on every rank, on some sooner: what
    was sent before still arrives; afterwards nothing may keep the process from ending. lacks: promises of Capabilities that turn
    out not to be made here, by name, each with its reason, such as "MyDDP has no no_sync()": their checks are skipped.
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

    requires: modules that must be importable for it to run. description: one line for listings. contract: the version of the
    contract that it was written for (ddpcheck.contract.CONTRACT is the one that is known here). The object must be a module
    attribute, so that ranks, which are other processes, can import it.
    """

    name: str
    connect: Callable[[RankContext], Facets]
    capabilities: Capabilities = field(default_factory=Capabilities)
    launcher: Launcher = field(default_factory=Processes)
    requires: tuple[str, ...] = ()
    description: str = ""
    contract: int = 1
