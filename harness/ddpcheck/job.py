"""A Job: what the ranks are asked to do. Immutable, framework-neutral, and a file that can be replayed.

A Job holds declarations and seeds, never arrays: ranks and oracle make the same numbers from them (values.py). Every rank
gets different numbers, unless a check says otherwise on purpose. Ranks run the operations in order; what an operation
yields goes into the Trace under the operation's position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from .job_measure import MeasureCollective as MeasureCollective
from .job_measure import MeasureSteps as MeasureSteps
from .job_random import Disturb as Disturb
from .job_random import Draw as Draw
from .job_sampling import ResumeSampling as ResumeSampling
from .job_start import ShortReads as ShortReads
from .job_start import Start as Start
from .job_windows import CloseWindow as CloseWindow
from .job_windows import OpenWindow as OpenWindow
from .job_windows import windows_that_do_not_fit
from .model import Linear, ModelSpec
from .plain import from_plain, plain, to_plain
from .probes import Leave, OnRanks, Sent
from .values import Array, Kind, key_of, numbers

PerRank = tuple[tuple[int, ...], ...]
"""One tuple of sample indices for each rank."""
Layout = Literal["C", "F", "strided", "reversed", "offset"]


@plain
@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An array that differs from rank to rank.

    layout: C (contiguous), F (transposed memory order), strided (every other element of a larger array), reversed
    (negative stride), offset (starts in the middle of a larger buffer, not aligned to a cache line).
    step: every value is multiplied by it: lattice values become multiples of the world size, whose means are exact, or
    get more significant bits than a narrower dtype holds.
    """

    kind: ClassVar[str] = "tensor"
    shape: tuple[int, ...]
    dtype: str = "float32"
    values: Kind = "lattice"
    seed: int = 0
    layout: Layout = "C"
    spread: int = 3
    step: int = 1

    def on(self, rank: int) -> Array:
        """This rank's values, C-contiguous."""
        made = numbers(self.shape, self.dtype, self.values, key_of(self.seed, rank), self.spread)
        if self.step != 1:
            made *= made.dtype.type(self.step)
        return made


@plain
@dataclass(frozen=True, slots=True)
class DataSpec:
    """A data set of `samples` samples for a model: inputs and targets made from `seed`, no two samples alike.

    poisoned: samples whose first input (first target, if inputs are ids) is NaN or infinite instead.
    """

    kind: ClassVar[str] = "data"
    samples: int
    values: Kind = "lattice"
    seed: int = 0
    poisoned: tuple[int, ...] = ()
    poison: Literal["nan", "inf"] = "nan"

    def arrays(self, model: ModelSpec) -> tuple[Array, Array]:
        """Inputs (samples, features) or ids (samples,); targets (samples, outputs) or labels (samples,)."""
        inputs, targets = self._healthy(model)
        if self.poisoned:
            (inputs if inputs.dtype.kind == "f" else targets)[list(self.poisoned), 0] = float(self.poison)
        return inputs, targets

    def _healthy(self, model: ModelSpec) -> tuple[Array, Array]:
        if model.vocabulary is not None:
            inputs = self._words(2) % model.vocabulary
        else:
            shape = (self.samples, model.input_features)
            inputs = numbers(shape, model.dtype, self.values, key_of(self.seed, 0), 2)
        if model.loss == "cross_entropy":
            return inputs, self._words(3) % model.output_features
        shape = (self.samples, model.output_features)
        return inputs, numbers(shape, model.dtype, self.values, key_of(self.seed, 1), 2)

    def _words(self, stream: int) -> Array:
        return numbers((self.samples,), "int64", "lattice", key_of(self.seed, stream), 1 << 40)


@plain
@dataclass(frozen=True, slots=True)
class OptimizerSpec:
    """SGD: v <- momentum v + g + weight_decay p; p <- p - lr v. Adam: with bias correction, betas, eps outside the
    root, weight_decay p added to the gradient.

    averaging: with one that is not 0, replicas keep an average a of each parameter p beside it: at first a is p, and each
    step() ends with a <- averaging a + (1 - averaging) p.
    """

    kind: ClassVar[str] = "optimizer"
    name: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    averaging: float = 0.0


# ------------------------------------------------------------------------------------------------- replica operations


@plain
@dataclass(frozen=True, slots=True)
class Backward:
    """Forward and backward on the rank's samples. Yields loss: the local mean loss before reduction.

    interrupted: on these ranks an exception of the training program leaves no_sync() after the backward, and is caught
    outside. Yields swallowed if it did not come out of no_sync().

    second: with it, a forward pass on these samples follows the first, and one backward on the sum of both losses
    (extras.TwoForwards); loss is that sum.
    """

    kind: ClassVar[str] = "backward"
    samples: PerRank
    sync: bool = True
    branches: tuple[tuple[str, ...], ...] = ()  # active branches of each rank; () means none on any
    interrupted: tuple[int, ...] = ()
    second: PerRank = ()

    def branches_on(self, rank: int) -> tuple[str, ...]:
        return self.branches[rank] if self.branches else ()


@plain
@dataclass(frozen=True, slots=True)
class ZeroGrad:
    """to_zeros: gradients that are there become zeros (extras.Zeroing), which a step takes; else there are none."""

    kind: ClassVar[str] = "zero_grad"
    to_zeros: bool = False


@plain
@dataclass(frozen=True, slots=True)
class Clip:
    """Clip by global norm. Yields norm: the norm before clipping."""

    kind: ClassVar[str] = "clip"
    max_norm: float


@plain
@dataclass(frozen=True, slots=True)
class Step:
    kind: ClassVar[str] = "step"


@plain
@dataclass(frozen=True, slots=True)
class Observe:
    """Read the replica. Yields each of `what` as a mapping of names to arrays (None: no gradient)."""

    kind: ClassVar[str] = "observe"
    what: tuple[Literal["parameters", "gradients", "buffers", "averaged"], ...] = ("parameters", "gradients", "buffers")


@plain
@dataclass(frozen=True, slots=True)
class Predict:
    """Forward in evaluation mode on the rank's samples; a rank without any is not asked. Yields outputs (batch,
    outputs).
    """

    kind: ClassVar[str] = "predict"
    samples: PerRank
    branches: tuple[tuple[str, ...], ...] = ()


@plain
@dataclass(frozen=True, slots=True)
class Save:
    """Keep every rank's replica state under a name, within this Job."""

    kind: ClassVar[str] = "save"
    name: str = "checkpoint"


@plain
@dataclass(frozen=True, slots=True)
class Resume:
    """Build a new replica (from other initial values) and load into it what this rank saved."""

    kind: ClassVar[str] = "resume"
    name: str = "checkpoint"


@plain
@dataclass(frozen=True, slots=True)
class Remeasure:
    """Running statistics anew, of these samples of all ranks (extras.Remeasuring)."""

    kind: ClassVar[str] = "remeasure"
    samples: PerRank


@plain
@dataclass(frozen=True, slots=True)
class Join:
    """Inside join() (extras.Joining) each rank does zero_grad, backward and step for each of its own batches, of which
    ranks may have different numbers.
    """

    kind: ClassVar[str] = "join"
    batches: tuple[PerRank, ...]  # of each rank

    def round(self, number: int) -> PerRank:
        """The ranks' samples in one of the steps; none on a rank that has run out."""
        return tuple(batches[number] if number < len(batches) else () for batches in self.batches)

    def rounds(self) -> int:
        return max(map(len, self.batches))


@plain
@dataclass(frozen=True, slots=True)
class SetTrainable:
    """These Linear layers learn from now on, or no longer do (extras.Unfreezing). Stands after a ZeroGrad."""

    kind: ClassVar[str] = "set_trainable"
    layers: tuple[str, ...]
    trainable: bool = True


# ---------------------------------------------------------------------------------------------------------- collectives


@plain
@dataclass(frozen=True, slots=True)
class AllReduce:
    """Yields result, of the tensor's shape and dtype.

    As every collective with a result it also yields argument_changed, aliases_argument (the result shares memory with
    the rank's own array) and overwritten_later (the result has changed by the end of the Job).
    """

    kind: ClassVar[str] = "all_reduce"
    tensor: TensorSpec
    reduction: Literal["sum", "mean", "min", "max", "prod"] = "sum"
    group: tuple[int, ...] | None = None
    wait: bool = True  # False: asynchronous, finished by a Wait
    in_place: bool = False  # all_reduce_in_place (extras.InPlace), on an array from empty()


@plain
@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for the asynchronous operation at position `operation`. Yields its result."""

    kind: ClassVar[str] = "wait"
    operation: int


@plain
@dataclass(frozen=True, slots=True)
class Broadcast:
    """Yields result: the root's array. Other ranks pass an array of poison."""

    kind: ClassVar[str] = "broadcast"
    tensor: TensorSpec
    root: int = 0
    group: tuple[int, ...] | None = None


@plain
@dataclass(frozen=True, slots=True)
class AllGather:
    """Yields result of shape (group size, *shape): the arrays of all ranks, in rank order."""

    kind: ClassVar[str] = "all_gather"
    tensor: TensorSpec
    group: tuple[int, ...] | None = None


@plain
@dataclass(frozen=True, slots=True)
class ReduceScatter:
    """The tensor's first dimension is a multiple of the group size. Yields result: this rank's block of the
    reduction.
    """

    kind: ClassVar[str] = "reduce_scatter"
    tensor: TensorSpec
    reduction: Literal["sum", "mean", "min", "max", "prod"] = "sum"
    group: tuple[int, ...] | None = None


@plain
@dataclass(frozen=True, slots=True)
class Barrier:
    kind: ClassVar[str] = "barrier"
    group: tuple[int, ...] | None = None


@plain
@dataclass(frozen=True, slots=True)
class SendRecv:
    """Every (source, destination) pair in turn, in this order on all ranks. Yields received:
    {"source>destination": array}.
    """

    kind: ClassVar[str] = "send_recv"
    tensor: TensorSpec
    pairs: tuple[tuple[int, int], ...]


# --------------------------------------------------------------------------------------------------- sampler and
# metrics


@plain
@dataclass(frozen=True, slots=True)
class Sample:
    """Make one sampler and read it once for each epoch. Yields epochs: one int64 array each, length: len(sampler), and
    length_before: what it was before anything was read.

    An epoch of None reads again without set_epoch. disturbed: between two readings this rank draws from the generators
    that its process shares, and the next seeds its own. peeks: so many samples rank r reads of each epoch first, before
    it begins anew, with set_epoch. beside: another sampler is told another epoch and read before each reading of this.
    """

    kind: ClassVar[str] = "sample"
    length: int
    epochs: tuple[int | None, ...] = (0,)
    shuffle: bool = True
    seed: int = 0
    drop_last: bool = False
    disturbed: int | None = None
    peeks: tuple[int, ...] = ()
    beside: bool = False


@plain
@dataclass(frozen=True, slots=True)
class Aggregate:
    """Aggregate local mean metrics over ranks: rank r holds values[r] as the mean over counts[r] samples. Yields
    metrics.
    """

    kind: ClassVar[str] = "aggregate"
    values: tuple[float, ...]
    counts: tuple[int, ...]


# -------------------------------------------------------------------------------------------------------------- trainer


@plain
@dataclass(frozen=True, slots=True)
class Train:
    """A whole training run by the implementation's own loop (adapter.TrainingTask) on the Job's model and data.

    Yields parameters: a mapping; losses: one for each epoch; indices: one int64 array for each epoch; learning_rates and
    best, None if the run does not tell them; written, with a folder: what this rank opened for writing there
    (files.watched).

    folder: its name within this Job. rank_0_only: every other rank has a folder of its own under that name. slow_disk:
    rank 0's file system takes its time (files.py).
    """

    kind: ClassVar[str] = "train"
    epochs: int = 2
    batch_size: int = 2
    shuffle: bool = True
    seed: int = 0
    max_norm: float | None = None
    micro_batches: int = 1
    schedule: Literal["constant", "linear"] = "constant"
    keep_best: bool = False
    folder: str | None = None
    resume: bool = False
    stop_after: int | None = None
    rank_0_only: bool = False
    slow_disk: bool = False


# -------------------------------------------------------------------------------------------------------------- mishaps


@plain
@dataclass(frozen=True, slots=True)
class Sleep:
    """One rank is late."""

    kind: ClassVar[str] = "sleep"
    rank: int
    seconds: float


@plain
@dataclass(frozen=True, slots=True)
class Raise:
    """One rank raises an exception between two operations of its training program."""

    kind: ClassVar[str] = "raise"
    rank: int
    message: str = "raised on purpose by the Job"


@plain
@dataclass(frozen=True, slots=True)
class Kill:
    """One rank's process is killed."""

    kind: ClassVar[str] = "kill"
    rank: int


Operation = (
    Backward | ZeroGrad | Clip | Step | Observe | Predict | Save | Resume | SetTrainable | Join | Remeasure
    | AllReduce | Wait | Broadcast | AllGather | ReduceScatter | Barrier | SendRecv
    | Sample | ResumeSampling | Draw | Aggregate | Train | Sleep | Raise | Kill
    | OpenWindow | CloseWindow | OnRanks | Leave | Sent | Disturb | ShortReads | MeasureCollective | MeasureSteps
)  # fmt: skip


@plain
@dataclass(frozen=True, slots=True)
class Job:
    """Operations for `world_size` ranks, with the model, optimizer and data that they use.

    Rank r builds its model from initial values of its own (seed and rank), so that a missing broadcast shows; replicas
    must then hold those of rank 0. start: how the ranks are started for this Job; None takes those that run. ValueError if
    the operations do not fit the world size or the data.
    """

    kind: ClassVar[str] = "job"
    world_size: int
    operations: tuple[Operation, ...]
    model: ModelSpec | None = None
    optimizer: OptimizerSpec = OptimizerSpec()  # frozen
    data: DataSpec | None = None
    seed: int = 0
    start: Start | None = None

    def __post_init__(self) -> None:
        problems = [
            f"operation {i} ({op.kind}): {text}" for i, op in enumerate(self.operations) for text in _misfits(self, op)
        ]
        problems += windows_that_do_not_fit(self.operations)
        if self.start is not None and (misfit := self.start.misfit(self.world_size)):
            problems.append(misfit)
        if problems:
            raise ValueError("this Job cannot run: " + "; ".join(problems))

    def initial(self, rank: int) -> dict[str, Array]:
        """The parameters and buffers with which `rank` builds its model."""
        assert self.model is not None
        kind: Kind = self.data.values if self.data else "lattice"
        return self.model.initial(key_of(self.seed, rank), kind)

    def initial_of_resumed(self, rank: int) -> dict[str, Array]:
        """The parameters and buffers with which `rank` builds the new replica that a Resume loads a state into."""
        assert self.model is not None
        return self.model.initial(key_of(self.seed, rank, 1), "real")

    def to_plain(self) -> dict[str, Any]:
        made: dict[str, Any] = to_plain(self)
        return made

    @staticmethod
    def from_plain(data: Any) -> Job:
        """Inverse of to_plain. ValueError if it is no Job."""
        job = from_plain(data)
        if not isinstance(job, Job):
            raise ValueError(f"not a Job, but {type(job).__name__}")
        return job


def _misfits(job: Job, operation: Operation) -> list[str]:
    kind = type(operation)
    found = ["the Job has no model"] if kind in _ON_REPLICA and job.model is None else []
    judge = _JUDGES.get(kind)
    return found + judge(job, operation) if judge else found


def _of_samples(job: Job, operation: Any) -> list[str]:
    found = []
    if len(operation.samples) != job.world_size:
        found.append(f"has samples for {len(operation.samples)} ranks, not {job.world_size}")
    if job.data is None:
        found.append("the Job has no data")
    elif any(rank and not 0 <= min(rank) <= max(rank) < job.data.samples for rank in operation.samples):
        found.append(f"a sample index is outside the {job.data.samples} samples")
    if getattr(operation, "branches", ()) and len(operation.branches) != job.world_size:
        found.append(f"has branches for {len(operation.branches)} ranks, not {job.world_size}")
    if job.data and any(not 0 <= sample < job.data.samples for sample in job.data.poisoned):
        found.append(f"a poisoned sample is outside the {job.data.samples} samples")
    if isinstance(operation, Backward) and operation.interrupted and operation.sync:
        found.append("is interrupted inside no_sync, but synchronised")
    return found


def _of_backward(job: Job, operation: Any) -> list[str]:
    second = operation.second
    return _of_samples(job, operation) + (_of_samples(job, Backward(second)) if second else [])


def _of_batches(job: Job, operation: Any) -> list[str]:
    rounds = range(operation.rounds()) if operation.batches else ()
    misfits = [text for number in rounds for text in _of_samples(job, Backward(operation.round(number)))]
    return misfits if rounds else ["no rank has a batch"]


def _of_layers(job: Job, operation: Any) -> list[str]:
    known = (
        {layer.name for layer in job.model.layers if isinstance(layer, Linear) and not layer.uses} if job.model else ()
    )
    return [f"{name!r} is no Linear layer with parameters of its own" for name in operation.layers if name not in known]


def _of_group(job: Job, operation: Any) -> list[str]:
    world, group = range(job.world_size), operation.group
    found = []
    if group is not None and (sorted(set(group)) != list(group) or not set(group) <= set(world) or not group):
        found.append(f"group {group} is not an ascending choice of ranks below {job.world_size}")
    root = getattr(operation, "root", None)
    if root is not None and root not in (group or world):
        found.append(f"root {root} is not in {group or f'range({job.world_size})'}")
    if isinstance(operation, ReduceScatter):
        size, shape = len(group or world), operation.tensor.shape
        if not shape or shape[0] % size:
            found.append(f"the first dimension of {shape} is no multiple of the group's {size}")
    return found


def _of_measured(job: Job, operation: Any) -> list[str]:
    shared = operation.collective in ("all_gather", "reduce_scatter") and operation.count % job.world_size
    found = [f"{operation.count} elements cannot be shared out to {job.world_size} ranks"] if shared else []
    if operation.collective == "send_recv" and job.world_size < 2:
        found.append("a message needs two ranks")
    if operation.in_place and operation.collective != "all_reduce":
        found.append(f"there is no {operation.collective} in place")
    return found


def _of_rank(job: Job, operation: Any) -> list[str]:
    inside = 0 <= operation.rank < job.world_size
    return [] if inside else [f"rank {operation.rank} is not in range({job.world_size})"]


def _of_ranks(job: Job, operation: Any) -> list[str]:
    strange = set(operation.ranks) - set(range(job.world_size))
    found = [f"ranks {sorted(strange)} are not in range({job.world_size})"] if strange else []
    return found + _misfits(job, operation.operation)


def _of_pairs(job: Job, operation: Any) -> list[str]:
    world = set(range(job.world_size))
    return [f"pair {pair} is not two ranks" for pair in operation.pairs if len(set(pair) & world) != 2]


def _of_metrics(job: Job, operation: Any) -> list[str]:
    fits = len(operation.values) == len(operation.counts) == job.world_size
    return [] if fits else [f"needs one value and one count for each of {job.world_size} ranks"]


def _of_reads(job: Job, operation: Any) -> list[str]:
    found = [] if operation.disturbed is None else _of_rank(job, Disturb(operation.disturbed))
    fits = len(operation.peeks) in (0, job.world_size)
    return found if fits else [*found, f"has peeks for {len(operation.peeks)} ranks, not {job.world_size}"]


def _of_draws(job: Job, operation: Any) -> list[str]:
    fits = len(operation.extra) in (0, job.world_size)
    return [] if fits else [f"has extra draws for {len(operation.extra)} ranks, not {job.world_size}"]


def _of_training(job: Job, operation: Any) -> list[str]:
    found = [] if job.data else ["the Job has no data"]
    sizes = (operation.epochs, operation.batch_size, operation.micro_batches)
    if min(sizes) <= 0:
        found.append(f"epochs, batch size and micro-batches must be positive, got {sizes}")
    if operation.stop_after is not None and not 0 < operation.stop_after <= operation.epochs:
        found.append(f"stop_after {operation.stop_after} is not in 1 to {operation.epochs}")
    if operation.folder is None and (operation.resume or operation.rank_0_only or operation.slow_disk):
        found.append("resume, rank_0_only and slow_disk need a folder")
    return found


_ON_REPLICA = frozenset(
    {Backward, ZeroGrad, Clip, Step, Observe, Predict, Save, Resume, SetTrainable, Join, Remeasure, Train, MeasureSteps}
    | {OpenWindow, CloseWindow}
)
_JUDGES: dict[type, Callable[[Job, Any], list[str]]] = {
    Backward: _of_backward,
    **dict.fromkeys((Predict, Remeasure, MeasureSteps), _of_samples),
    **dict.fromkeys((AllReduce, Broadcast, AllGather, ReduceScatter, Barrier), _of_group),
    **dict.fromkeys((Sleep, Raise, Kill, Leave, Disturb), _of_rank),
    MeasureCollective: _of_measured,
    OnRanks: _of_ranks,
    SetTrainable: _of_layers,
    Join: _of_batches,
    SendRecv: _of_pairs,
    Draw: _of_draws,
    Sample: _of_reads,
    Aggregate: _of_metrics,
    Train: _of_training,
}
