"""A Job's operations, done on one rank with the facets of an implementation; what each yields is recorded.

This is the only place where the harness calls an implementation. Everything that comes back is validated here; all
problems of one operation are raised together.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from . import job as ops
from .adapter import Batch, Facets, Replica, TrainingRun, TrainingTask
from .files import watched
from .job import Job, Layout, OptimizerSpec
from .measuring import measured_collective, measured_steps
from .operations import probes
from .operations.randomness import NoNumbers, disturb, drawn
from .operations.resume_sampling import NoState, resumed
from .short_reads import cut_reads, reads_cut, whole_reads
from .sockets import sent_by_connection
from .trace import Record
from .values import Array

S = TypeVar("S")


class ContractBroken(Exception):
    """The implementation returned something that the contract does not allow."""


class ProgramEnded(BaseException):
    """Nobody in the rank's program catches this."""


class _Interruption(Exception):
    """Raised and caught by the training program (job.Backward.interrupted)."""


class Execution:
    """One Job on one rank. `records` grows as operations are entered, so that it tells where a rank is stuck.

    scratch: where the Job's files go, the same on all ranks, and used by no other Job; it need not exist.
    """

    def __init__(
        self, facets: Facets, job: Job, rank: int, progress: Callable[[int], None], scratch: Path | None = None
    ) -> None:
        self._scratch = scratch
        self.records: list[Record] = []
        self._facets = facets
        self._job = job
        self._rank = rank
        self._progress = progress
        self._replica: Replica | None = None
        self._options: dict[str, Any] = {}
        self._arrays: tuple[Array, Array] | None = None
        self._shapes: dict[str, tuple[tuple[int, ...], str]] = {}
        self._learned: frozenset[str] = frozenset()
        self._buffers: frozenset[str] = frozenset()
        self._switched: frozenset[str] = frozenset()  # parameters of layers that were frozen or unfrozen
        self._saved: dict[str, Mapping[str, Array]] = {}
        self._handles: dict[int, Any] = {}
        self._windows: list[AbstractContextManager[Any]] = []
        self._handed_out: list[tuple[dict[str, Any], str, Array, Any]] = []

    def run(self) -> None:
        """All operations in order; an exception of the implementation goes through."""
        if self._job.model is not None:
            self._declare()
        poisoned = self._job.data is not None and bool(self._job.data.poisoned)
        try:
            # once for all operations: NumPy may warn of what is there on purpose
            with np.errstate(invalid="ignore", over="ignore") if poisoned else nullcontext():
                self._run_all()
        finally:
            whole_reads()

    def _run_all(self) -> None:
        clock = time.monotonic
        for position, operation in enumerate(self._job.operations):
            self._progress(position)
            entered = clock()
            self.records.append(Record(position, operation.kind, entered, None, {}))
            values = _RUNNERS[operation.kind](self, operation)
            self.records[-1] = Record(position, operation.kind, entered, clock(), values)
        for values, name, copy, handed_out in self._handed_out:
            if copy.tobytes() != np.asarray(handed_out).tobytes():
                values.setdefault("overwritten_later", []).append(name)

    # ------------------------------------------------------------------------------------------------------- replica

    def _declare(self) -> None:
        assert self._job.model is not None
        tensors = self._job.model.tensors()
        self._shapes = {t.name: (t.shape, t.dtype) for t in tensors}
        self._learned = frozenset(t.name for t in tensors if t.role == "learned")
        self._buffers = frozenset(t.name for t in tensors if t.role == "buffer")

    def _model(self) -> Replica:
        if self._replica is None:
            self._replica = self._build(self._job.initial(self._rank))
        return self._replica

    def _build(self, initial: dict[str, Array]) -> Replica:
        model, optimizer = self._job.model, self._job.optimizer
        make = _offered(self._facets.make_replica, "make_replica")
        assert model is not None
        assert isinstance(optimizer, OptimizerSpec)
        replica: Replica = make(model, initial, optimizer, self._options)
        return replica

    def _batch(self, samples: Sequence[int], branches: tuple[str, ...]) -> Batch:
        if self._arrays is None:
            assert self._job.data is not None
            assert self._job.model is not None
            self._arrays = self._job.data.arrays(self._job.model)
        inputs, targets = self._arrays
        rows = np.array(samples, np.intp)
        return Batch(inputs[rows], targets[rows], branches)

    def backward(self, op: ops.Backward) -> dict[str, Any]:
        replica = self._model()
        batch = self._batch(op.samples[self._rank], op.branches_on(self._rank))
        given = {"inputs": batch.inputs.tobytes(), "targets": batch.targets.tobytes()}
        values: dict[str, Any] = {}
        loss: Any = None
        if op.second:
            loss = self._extra("backward_of_both")(batch, self._batch(op.second[self._rank], ()))
        elif op.sync:
            loss = replica.backward(batch)
        else:
            interrupted = self._rank in op.interrupted
            try:
                with replica.no_sync():
                    loss = replica.backward(batch)
                    if interrupted:
                        raise _Interruption
                values |= {"swallowed": True} if interrupted else {}
            except _Interruption:
                pass
        after = {"inputs": batch.inputs.tobytes(), "targets": batch.targets.tobytes()}
        changed = [name for name in given if given[name] != after[name]]
        return values | {"loss": _number(loss, "backward()")} | ({"batch_changed": changed} if changed else {})

    def zero_grad(self, op: ops.ZeroGrad) -> dict[str, Any]:
        (self._extra("zero_gradients") if op.to_zeros else self._model().zero_grad)()
        return {}

    def open_window(self, op: ops.OpenWindow) -> dict[str, Any]:
        window = self._model().no_sync()
        window.__enter__()
        self._windows.append(window)
        return {}

    def close_window(self, op: ops.CloseWindow) -> dict[str, Any]:
        self._windows.pop().__exit__(None, None, None)
        return {}

    def clip(self, op: ops.Clip) -> dict[str, Any]:
        return {"norm": _number(self._model().clip(op.max_norm), "clip()")}

    def step(self, op: ops.Step) -> dict[str, Any]:
        self._model().step()
        return {}

    def observe(self, op: ops.Observe) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for what in op.what:
            names = {"gradients": self._learned | self._switched, "buffers": self._buffers}.get(what) or (
                self._buffers if what == "buffers" else self._shapes.keys() - self._buffers
            )
            got = self._extra(what)()
            if what == "gradients" and self._switched and isinstance(got, Mapping):
                got = dict.fromkeys(self._switched) | dict(got)  # a frozen layer's may be left out
            seen[what] = self._mapping(got, f"{what}()", names, optional=what == "gradients")
        return seen

    def _mapping(self, got: Any, what: str, names: Any, *, optional: bool) -> dict[str, Array | None]:
        if not isinstance(got, Mapping):
            raise ContractBroken(f"{what} must return a mapping of names to arrays, got {type(got).__name__}")
        problems = [f"{name!r} is missing" for name in names if name not in got]
        problems += [f"{name!r} is no name of this model" for name in got if name not in names]
        for name in names & got.keys():
            array = got[name]
            if array is None and optional:
                continue
            if not isinstance(array, (np.ndarray, np.generic)):
                problems.append(f"{name!r} is {type(array).__name__}, not an array")
                continue
            shape, dtype = self._shapes[name]
            if array.shape != shape or array.dtype != dtype:
                problems.append(f"{name!r} is {array.dtype}{list(array.shape)}, but was declared {dtype}{list(shape)}")
        if problems:
            raise ContractBroken(f"{what}: " + "; ".join(problems))
        return {name: None if got[name] is None else np.array(got[name]) for name in got}

    def set_trainable(self, op: ops.SetTrainable) -> dict[str, Any]:
        names = self._shapes.keys() - self._buffers
        self._switched |= {name for name in names if name.rpartition(".")[0] in op.layers}
        self._extra("set_trainable")(list(op.layers), op.trainable)
        return {}

    def join(self, op: ops.Join) -> dict[str, Any]:
        replica = self._model()
        losses = []
        with self._extra("join")():
            for samples in op.batches[self._rank]:
                replica.zero_grad()
                losses.append(_number(replica.backward(self._batch(samples, ())), "backward()"))
                replica.step()
        return {"losses": losses}

    def remeasure(self, op: ops.Remeasure) -> dict[str, Any]:
        self._extra("remeasure")(self._batch(op.samples[self._rank], ()))
        return {}

    def _extra(self, method: str) -> Any:
        return _offered(getattr(self._model(), method, None), f"make_replica().{method}")

    def predict(self, op: ops.Predict) -> dict[str, Any]:
        branches = op.branches[self._rank] if op.branches else ()
        batch = self._batch(op.samples[self._rank], branches)
        assert self._job.model is not None
        shape, dtype = (len(batch.inputs), self._job.model.output_features), self._job.model.dtype
        if not op.samples[self._rank]:
            return {"outputs": np.empty(shape, dtype)}
        got = self._model().predict(batch)
        return {"outputs": _array(got, shape, dtype, "predict()")}

    def save(self, op: ops.Save) -> dict[str, Any]:
        state = self._model().state()
        if not isinstance(state, Mapping) or not all(isinstance(v, np.ndarray) for v in state.values()):
            raise ContractBroken("state() must return a mapping of names to NumPy arrays")
        saved = {name: np.array(value) for name, value in state.items()}
        values: dict[str, Any] = {"names": sorted(state)}
        self._handed_out += [(values, name, copy, state[name]) for name, copy in saved.items()]
        self._saved[op.name] = saved
        return values

    def resume(self, op: ops.Resume) -> dict[str, Any]:
        assert self._job.model is not None
        self._replica = self._build(self._job.initial_of_resumed(self._rank))
        self._replica.load_state(self._saved[op.name])
        return {}

    # --------------------------------------------------------------------------------------------------- collectives

    def all_reduce(self, op: ops.AllReduce) -> dict[str, Any]:
        if not self._takes_part(op.group):
            return {}
        tensor = op.tensor.on(self._rank)
        argument = laid_out(tensor, op.tensor.layout)
        comm = self._comm()
        if op.in_place:
            return self._reduced_in_place(comm, op, tensor)
        if not op.wait:
            self._handles[len(self.records) - 1] = (
                comm.all_reduce_async(argument, op.reduction, group=op.group),
                argument,
                tensor,
            )
            return {}
        return self._result(comm.all_reduce(argument, op.reduction, group=op.group), argument, tensor, "all_reduce()")

    def _reduced_in_place(self, comm: Any, op: ops.AllReduce, tensor: Array) -> dict[str, Any]:
        array = _array(comm.empty(tensor.shape, tensor.dtype.name), tensor.shape, tensor.dtype, "empty()", copy=False)
        array[...] = tensor
        comm.all_reduce_in_place(array, op.reduction, group=op.group)
        values: dict[str, Any] = {"result": array.copy(), "argument_changed": False, "aliases_argument": False}
        self._handed_out.append((values, "result", values["result"], array))
        return values

    def wait(self, op: ops.Wait) -> dict[str, Any]:
        if op.operation not in self._handles:
            return {}
        handle, argument, tensor = self._handles.pop(op.operation)
        return self._result(handle.wait(), argument, tensor, "wait()")

    def broadcast(self, op: ops.Broadcast) -> dict[str, Any]:
        if not self._takes_part(op.group):
            return {}
        tensor = op.tensor.on(self._rank)
        given = tensor if self._rank == op.root else poison_like(tensor)
        argument = laid_out(given, op.tensor.layout)
        return self._result(self._comm().broadcast(argument, op.root, group=op.group), argument, given, "broadcast()")

    def all_gather(self, op: ops.AllGather) -> dict[str, Any]:
        if not self._takes_part(op.group):
            return {}
        tensor = op.tensor.on(self._rank)
        argument = laid_out(tensor, op.tensor.layout)
        shape = (len(op.group or range(self._job.world_size)), *tensor.shape)
        return self._result(self._comm().all_gather(argument, group=op.group), argument, tensor, "all_gather()", shape)

    def reduce_scatter(self, op: ops.ReduceScatter) -> dict[str, Any]:
        if not self._takes_part(op.group):
            return {}
        tensor = op.tensor.on(self._rank)
        argument = laid_out(tensor, op.tensor.layout)
        size = len(op.group or range(self._job.world_size))
        shape = (tensor.shape[0] // size, *tensor.shape[1:])
        result = self._comm().reduce_scatter(argument, op.reduction, group=op.group)
        return self._result(result, argument, tensor, "reduce_scatter()", shape)

    def _result(
        self, result: Any, argument: Array, given: Array, what: str, shape: tuple[int, ...] | None = None
    ) -> dict[str, Any]:
        """What a collective yields: its result, and what became of the argument, whose values were `given`."""
        made = _array(result, given.shape if shape is None else shape, given.dtype, what)
        values = {
            "result": made,
            "argument_changed": argument.tobytes() != given.tobytes(),
            "aliases_argument": isinstance(result, np.ndarray) and np.may_share_memory(result, argument),
        }
        left = made
        if not values["aliases_argument"]:
            # both are the caller's now, whoever still has to read or write them
            if what != "wait()":  # where it would hide what came too early
                argument[...] = poison_like(argument)
            if isinstance(result, np.ndarray) and result.flags.writeable:
                # other values for each operation: results that share their memory show
                result[...] = left = np.full(made.shape, 113 + len(self.records) % 900, made.dtype)
        self._handed_out.append((values, "result", left, result))
        return values

    def barrier(self, op: ops.Barrier) -> dict[str, Any]:
        if self._takes_part(op.group):
            self._comm().barrier(group=op.group)
        return {}

    def send_recv(self, op: ops.SendRecv) -> dict[str, Any]:
        tensor = op.tensor.on(self._rank)
        received: dict[str, Array] = {}
        values: dict[str, Any] = {"received": received}
        for source, dest in op.pairs:
            if self._rank == source:
                argument = laid_out(tensor, op.tensor.layout)
                self._comm().send(argument, dest)
                argument[...] = poison_like(tensor)  # the sender may use its array again, received or not
            elif self._rank == dest:
                got = self._comm().recv(laid_out(poison_like(tensor), op.tensor.layout), source)
                made = received[f"{source}>{dest}"] = _array(got, tensor.shape, tensor.dtype, "recv()")
                self._handed_out.append((values, f"received from rank {source}", made, got))
        return values

    def _comm(self) -> Any:
        return _offered(self._facets.collectives, "collectives")

    def _takes_part(self, group: tuple[int, ...] | None) -> bool:
        return group is None or self._rank in group

    # -------------------------------------------------------------------------- sampler, random numbers and metrics

    def sample(self, op: ops.Sample) -> dict[str, Any]:
        make = _offered(self._facets.make_sampler, "make_sampler")
        sampler = make(op.length, shuffle=op.shuffle, seed=op.seed, drop_last=op.drop_last)
        other = make(op.length, shuffle=op.shuffle, seed=op.seed + 1, drop_last=op.drop_last) if op.beside else None
        length = len(sampler)
        epochs = []
        for number, epoch in enumerate(op.epochs):
            if number and op.disturbed is not None:
                disturb(op.disturbed, self._rank, self._job.world_size)
            if peek := op.peeks[self._rank] if op.peeks else 0:
                if epoch is not None:
                    sampler.set_epoch(epoch)
                list(islice(iter(sampler), peek))
            if epoch is not None:
                sampler.set_epoch(epoch)
            if other is not None:
                other.set_epoch((epoch or 0) + 7)
                list(other)
            epochs.append(_indices(sampler, op.length, "the sampler"))
        return {"epochs": epochs, "length": len(sampler), "length_before": length}

    def resume_sampling(self, op: ops.ResumeSampling) -> dict[str, Any]:
        try:
            found = resumed(_offered(self._facets.make_sampler, "make_sampler"), op)
        except NoState as error:
            raise ContractBroken(str(error)) from None
        pieces = [_indices(piece, op.length, "the sampler") for piece in found.pop("pieces")]
        return {"pieces": pieces} | {name: _indices(order, op.length, "the sampler") for name, order in found.items()}

    def draw(self, op: ops.Draw) -> dict[str, Any]:
        make = _offered(self._facets.make_streams, "make_streams")
        try:
            return dict(drawn(make(op.seed), op, self._rank))
        except NoNumbers as error:
            raise ContractBroken(str(error)) from None

    def aggregate(self, op: ops.Aggregate) -> dict[str, Any]:
        aggregate = _offered(self._facets.aggregate_metrics, "aggregate_metrics")
        got = aggregate({"metric": op.values[self._rank]}, op.counts[self._rank])
        if not isinstance(got, Mapping):
            raise ContractBroken(
                f"aggregate_metrics() must return a mapping of names to numbers, got {type(got).__name__}"
            )
        return {"metrics": {str(name): _number(value, "aggregate_metrics()") for name, value in got.items()}}

    # ------------------------------------------------------------------------------------------------------- trainer

    def train(self, op: ops.Train) -> dict[str, Any]:
        job = self._job
        assert job.model is not None
        assert job.data is not None
        inputs, targets = job.data.arrays(job.model)
        earlier = [o for o in job.operations[: len(self.records) - 1] if isinstance(o, ops.Train)]
        goes_on = op.resume and any(other.folder == op.folder for other in earlier)
        initial = job.initial_of_resumed(self._rank) if goes_on else job.initial(self._rank)
        task = TrainingTask(
            job.model, initial, job.optimizer, inputs, targets,
            op.epochs, op.batch_size, op.shuffle, op.seed, op.max_norm,
            op.micro_batches, op.schedule, op.keep_best, self._folder(op), op.resume, op.stop_after,
        )  # fmt: skip
        train = _offered(self._facets.train, "train")
        if task.folder is None:
            return self._trained(op, train(task))
        with watched(task.folder, slow=op.slow_disk and self._rank == 0) as written:
            run = train(task)
        return self._trained(op, run) | {"written": written}

    def _folder(self, op: ops.Train) -> str | None:
        if op.folder is None:
            return None
        if self._scratch is None:
            raise RuntimeError("this Job needs a folder for its files: give Execution a scratch")
        self._scratch.mkdir(parents=True, exist_ok=True)
        name = f"{op.folder}-of-rank-{self._rank}" if op.rank_0_only and self._rank else op.folder
        return str(self._scratch / name)

    def _trained(self, op: ops.Train, run: Any) -> dict[str, Any]:
        if not isinstance(run, TrainingRun):
            raise ContractBroken(f"train() must return a ddpcheck.TrainingRun, got {type(run).__name__}")
        epochs = op.stop_after or op.epochs
        told = (len(run.losses), len(run.indices))
        if told[0] != told[1] or told[0] > epochs or (told[0] != epochs and not op.resume):
            raise ContractBroken(
                f"train() returned {told[0]} losses and {told[1]} lists of indices for {epochs} epochs"
            )
        if op.keep_best and run.best is None:
            raise ContractBroken("train() returned no best weights, though the task has keep_best")
        names = self._shapes.keys() - self._buffers
        assert self._job.data is not None
        values: dict[str, Any] = {
            "parameters": self._mapping(run.parameters, "train().parameters", names, optional=False),
            "losses": [_number(loss, "train().losses") for loss in run.losses],
            "indices": [_indices(epoch, self._job.data.samples, "train()") for epoch in run.indices],
        }
        best, rates = run.best, run.learning_rates
        values["best"] = None if best is None else self._mapping(best, "train().best", names, optional=False)
        values["learning_rates"] = (
            None if rates is None else [_number(rate, "train().learning_rates") for rate in rates]
        )
        return values

    # ------------------------------------------------------------------------------------------------------- mishaps

    def sleep(self, op: ops.Sleep) -> dict[str, Any]:
        if op.rank == self._rank:
            time.sleep(op.seconds)
        return {}

    def raise_(self, op: ops.Raise) -> dict[str, Any]:
        if op.rank == self._rank:
            raise RuntimeError(op.message)
        return {}

    def kill(self, op: ops.Kill) -> dict[str, Any]:
        if op.rank == self._rank:
            os.kill(os.getpid(), signal.SIGKILL)
        return {}

    def leave(self, op: probes.Leave) -> dict[str, Any]:
        if op.rank != self._rank:
            return {}
        if op.close and self._facets.close is not None:
            self._facets.close()
        raise ProgramEnded("this rank's program ends, as the Job says")

    # -------------------------------------------------------------------------------------------------------- probes

    def on_ranks(self, op: probes.OnRanks) -> dict[str, Any]:
        return _RUNNERS[op.operation.kind](self, op.operation) if self._rank in op.ranks else {}

    def sent(self, op: probes.Sent) -> dict[str, Any]:
        del op
        return {"sent": sent_by_connection()}

    def short_reads(self, op: ops.ShortReads) -> dict[str, Any]:
        (cut_reads if op.on else whole_reads)()
        return {"reads": reads_cut()}

    def measure_collective(self, op: ops.MeasureCollective) -> dict[str, Any]:
        return measured_collective(self._comm(), self._facets.counts, op, self._rank, self._job.world_size)

    def measure_steps(self, op: ops.MeasureSteps) -> dict[str, Any]:
        if dict(op.options) != self._options:
            self._replica, self._options = None, dict(op.options)
        return measured_steps(self._model(), self._facets.counts, op, self._batch(op.samples[self._rank], ()))

    def disturb(self, op: ops.Disturb) -> dict[str, Any]:
        disturb(op.rank, self._rank, self._job.world_size)
        return {}


_RUNNERS: dict[str, Callable[[Execution, Any], dict[str, Any]]] = {
    kind: getattr(Execution, "raise_" if kind == "raise" else kind)
    for kind in (operation.kind for operation in ops.Operation.__args__)
}


def laid_out(array: Array, layout: Layout) -> Array:
    """A copy of `array` with equal values and another place in memory (see TensorSpec)."""
    if layout == "F":
        return np.array(array, order="F")
    if layout == "strided":
        wide = np.repeat(poison_like(array).reshape(-1), 2)
        wide[::2] = array.reshape(-1)
        return wide[::2].reshape(array.shape) if array.ndim == 1 else _strided(array)
    if layout == "reversed" and array.ndim:
        return np.array(array[::-1])[::-1]
    if layout == "offset":
        room = np.empty(array.size + 1, array.dtype)
        room[1:] = array.reshape(-1)
        return room[1:].reshape(array.shape)
    return array.copy()


def _strided(array: Array) -> Array:
    if not array.ndim:
        return array.copy()
    wide = np.empty((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[...] = poison_like(wide)
    view = wide[..., ::2]
    view[...] = array
    return view


def poison_like(array: Array) -> Array:
    """Values that nobody would compute: a write that never came shows."""
    return np.full(array.shape, np.nan if array.dtype.kind in "fc" else 113, array.dtype)


def _offered(facet: S | None, name: str) -> S:
    if facet is None:
        raise ContractBroken(f"the Job needs Facets.{name}, which this implementation does not offer")
    return facet


def _array(got: Any, shape: tuple[int, ...], dtype: Any, what: str, *, copy: bool = True) -> Array:
    if not isinstance(got, (np.ndarray, np.generic)):
        raise ContractBroken(f"{what} must return a NumPy array, got {type(got).__name__}")
    if got.shape != shape or got.dtype != dtype:
        raise ContractBroken(
            f"{what} returned {got.dtype}{list(got.shape)}, but must return {np.dtype(dtype)}{list(shape)}"
        )
    return np.array(got) if copy else np.asarray(got)


def _indices(got: Iterable[Any], length: int, what: str) -> Array:
    indices = list(got)
    strange = [i for i in indices if not isinstance(i, (int, np.integer)) or not 0 <= i < length]
    if strange:
        raise ContractBroken(f"{what} gave {strange[:5]!r}, which are no indices below {length}")
    return np.array(indices, np.int64)


def _number(got: Any, what: str) -> float:
    try:
        return float(got)
    except (TypeError, ValueError):
        raise ContractBroken(f"{what} must return a number, got {got!r}") from None
