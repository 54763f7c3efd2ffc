"""A replica's operations as plain calls; expected values are the oracle's, written out with their bounds."""

from __future__ import annotations

import json
import math

from ..contract import Determinism
from ..job import Backward, Clip, Job, Make, Observe, Operation, Predict, Resume, Save, SetTrainable, Step, ZeroGrad
from ..oracle import ExpectedOperation, Oracle, is_exact
from . import batch_norm_steps, expected, repeated_calls
from .literals import bound, declaration, listed, literal, mapping, model
from .text import NoScript, Text

_INPUT_ELEMENTS = 1000
"""Elements of one rank's model, or of the data, that are written out. Larger ones are made by ddpcheck's declarations,
and are not compared again as lent arguments.
"""


class Replicas:
    """The oracle's walk beside the program, for Jobs with a model."""

    def __init__(self, text: Text) -> None:
        self.text, job = text, text.job
        self.exact = is_exact(job, text.capabilities)
        operated = any(isinstance(op, (Backward, Observe, Predict)) for op in job.operations)
        self.moments: dict[int, ExpectedOperation] = {}
        self.switched: set[str] = set()  # layers that were frozen or unfrozen
        self._whose = ""  # which of two replicas is current
        if operated:
            oracle = Oracle(job, text.capabilities, bounds=not self.exact)
            self.moments = {moment.position: moment for moment in oracle.walk()}
        self._declare()

    def _declare(self) -> None:
        text, job = self.text, self.text.job
        assert job.model is not None
        world, used = range(job.world_size), set[str]()
        text.inputs.append(f"MODEL = {model(job.model, used)}")
        text.needs("models.spec", *used)
        text.needs("job", "OptimizerSpec")
        text.inputs.append(f"OPTIMIZER = {declaration(job.optimizer, set())}")
        remark = "# each rank starts from other values; all must take over rank 0's\n" if len(world) > 1 else ""
        text.inputs.append(remark + self._initial("INITIAL", "initial", job))
        if job.data is not None:
            inputs, targets = job.data.arrays(job.model)
            if inputs.size + targets.size <= _INPUT_ELEMENTS:
                text.inputs.append(f"INPUTS = {literal(inputs)}\nTARGETS = {literal(targets)}")
            else:
                text.needs("job", "DataSpec")
                text.inputs.append(f"INPUTS, TARGETS = {declaration(job.data, set())}.arrays(MODEL)")

    def _initial(self, name: str, method: str, job: Job) -> str:
        """Every rank's initial values."""
        assert job.model is not None
        ranks = [getattr(job, method)(rank) for rank in range(job.world_size)]
        if sum(array.size for array in ranks[0].values()) <= _INPUT_ELEMENTS:
            return listed([mapping(one) for one in ranks], name)
        self.text.needs("job", "Job")
        made = f"Job({job.world_size}, (), MODEL, data={declaration(job.data, set())}, seed={job.seed})"
        self.text.needs("job", *(["DataSpec"] if job.data else []))
        return f"{name} = [{made}.{method}(rank) for rank in range({job.world_size})]"

    def first(self) -> None:
        self.text.use("make_replica")
        self.text.add("", *self._lent("INITIAL[rank]", "make_replica()"))
        self.text.add("replica = make_replica(MODEL, INITIAL[rank], OPTIMIZER, {})")

    def backward(self, position: int, op: Backward) -> None:
        self.text.comment(position, "forward and backward" + " without synchronisation" * (not op.sync))
        self._batch(op)
        if op.broken:
            self._broken(op)
            return
        if op.sync:
            self.text.add("loss = replica.backward(batch)")
        else:
            self.text.add("with replica.no_sync():", "    loss = replica.backward(batch)")
        self.text.add('expect_unchanged("the inputs of the batch", batch.inputs, INPUTS[samples])')
        expected.number(self.text, self.moments[position].numbers["loss"], "loss", "local loss, before any reduction")

    def _broken(self, op: Backward) -> None:
        within = ["    call(batch)"] if op.sync else ["    with replica.no_sync():", "        call(batch)"]
        self.text.add(
            f"call = replica.break_backward if rank in {op.broken} else replica.backward",
            "try:  # the model raises in the middle of the backward",
            *within,
            "except Exception:",
            "    pass",
        )

    def unjudged(self, text: Text, position: int, op: Operation) -> None:
        """One of the operations repeated to find leaked resources; NoScript for other operations."""
        calls = {
            Step: "step()",
            Clip: f"clip({getattr(op, 'max_norm', 0.0)})",
            Save: "state()",
            ZeroGrad: "zero_grad()",
        }
        if isinstance(op, (Backward, Predict)):
            self._batch(op)
            local = isinstance(op, Backward) and not op.sync
            self.text.add("with replica.no_sync():" if local else "if True:")
            self.text.add(f"    replica.{'backward' if isinstance(op, Backward) else 'predict'}(batch)")
        elif isinstance(op, Observe):
            self.text.add(*(f"replica.{what}()" for what in op.what))
        elif type(op) in calls:
            self.text.add(f"replica.{calls[type(op)]}")
        else:
            raise NoScript(f"operation {position} (rounds of {op.kind}) has no plain form")

    def zero_grad(self, position: int, op: ZeroGrad) -> None:
        self.text.comment(position, "set existing gradients to zero" if op.to_zeros else "zero_grad")
        self.text.add("replica.zero_gradients()" if op.to_zeros else "replica.zero_grad()")

    def open_window(self, position: int, op: object) -> None:
        self.text.comment(position, "enter no_sync, and keep it open")
        windows = f"windows{self._whose}"
        self.text.add(f"{windows} = [*locals().get('{windows}', []), replica.no_sync()]", f"{windows}[-1].__enter__()")

    def close_window(self, position: int, op: object) -> None:
        self.text.comment(position, "leave the innermost no_sync")
        self.text.add(f"windows{self._whose}.pop().__exit__(None, None, None)")

    def set_trainable(self, position: int, op: SetTrainable) -> None:
        how = "are trained from now on" if op.trainable else "are frozen from now on"
        self.text.comment(position, f"layers that {how}: {', '.join(op.layers)}")
        self.text.add(f"replica.set_trainable({list(op.layers)}, {op.trainable})")
        self.switched |= {*op.layers}

    def clip(self, position: int, op: Clip) -> None:
        self.text.comment(position, "clip by the global norm")
        self.text.add(f"norm = replica.clip({op.max_norm})")
        expected.number(self.text, self.moments[position].numbers["norm"], "norm", "norm before clipping")

    def step(self, position: int, op: object) -> None:
        self.text.comment(position, "a step of the optimizer")
        if batch_norm_steps.between_looks(self.text.job, position):
            batch_norm_steps.remember(self.text)
        self.text.add("replica.step()")

    def observe(self, position: int, op: Observe) -> None:
        self.text.comment(position, f"look at {', '.join(op.what)}")
        for what in op.what:
            entries = self.moments[position].arrays[what]
            if not entries:
                continue
            self.text.judges = True
            self.text.add(f"{what} = replica.{what}()")
            for name, entry in entries.items():
                expected.tensor(self.text, what, name, entry, self.switched)
            alike = [
                name for name, entry in entries.items() if entry.alike and {*entry.presence} in ({"there"}, {"either"})
            ]
            if (
                alike
                and self.text.job.world_size > 1
                and not self.exact
                and (self.text.capabilities.world.determinism >= Determinism.BETWEEN_RANKS)
            ):
                self.text.add(f"expect_same_bits_on_all_ranks({what}, {json.dumps(alike)})")
            if what == "parameters" and position and batch_norm_steps.between_looks(self.text.job, position - 1):
                batch_norm_steps.compare(self.text)

    def predict(self, position: int, op: Predict) -> None:
        self.text.comment(position, "outputs in evaluation mode")
        moment = self.moments[position]
        self._batch(op)
        ranks = [rank for rank in moment.promised if op.samples[rank]]
        asked = [rank for rank, samples in enumerate(op.samples) if samples]
        if not asked:
            return
        self.text.add(f"if rank in {asked}:", "    outputs = replica.predict(batch)")
        for rank in ranks:
            value = moment.outputs[rank]
            if expected.anything_goes(value):
                continue
            within = "" if value.error is None else f", within={bound(value.error)}"
            want = expected.written(value.exact, self._dtype(), bits=not within)
            self.text.add(f"if rank == {rank}:", f'    expect("outputs", outputs, {want}{within})')
            self.text.judges = True

    def save(self, position: int, op: Save) -> None:
        self.text.comment(position, "save a checkpoint")
        kept = self._state(op.name)
        self.text.add(
            "state = replica.state()",
            f"{kept} = {{name: np.array(array) for name, array in state.items()}}",
            f"handed_out.extend((name, state[name], {kept}[name]) for name in state)  # compared again at the end",
        )

    def resume(self, position: int, op: Resume) -> None:
        initial = f"INITIAL_OF_RESUMED{self._whose.upper()}"
        if not any(line.startswith(f"{initial} =") for line in self.text.inputs):
            job = self.text.job.of_second() if self._whose else self.text.job
            self.text.inputs.append(self._initial(initial, "initial_of_resumed", job))
        self.text.comment(position, "a new replica, with other initial values, resumes from the checkpoint")
        self.text.add(f"replica = make_replica(MODEL, {initial}[rank], OPTIMIZER, {{}})")
        self.text.add(f"state = {{name: array.copy() for name, array in {self._state(op.name)}.items()}}")
        self.text.add(*self._lent("state", "load_state()"), "replica.load_state(state)")

    def make(self, position: int, op: Make) -> None:
        self.text.use("make_replica")
        repeated_calls.make(self.text, position, op)

    def switch(self, position: int, op: object) -> None:
        if not any(line.startswith("INITIAL_OF_SECOND =") for line in self.text.inputs):
            self.text.inputs.append(self._initial("INITIAL_OF_SECOND", "initial", self.text.job.of_second()))
            self.text.add("other = make_replica(MODEL, INITIAL_OF_SECOND[rank], OPTIMIZER, {})")
        self.text.comment(position, "continue with the other of two replicas")
        self.text.add("replica, other = other, replica")
        self._whose = "" if self._whose else "_of_second"

    # ----------------------------------------------------------------------------------------------------------- parts

    def _state(self, name: str) -> str:
        return (f"saved_{name}" if name.isidentifier() else "saved") + self._whose

    def _lent(self, arrays: str, to: str) -> list[str]:
        """Lines that compare small arguments again at the end."""
        assert self.text.job.model is not None
        if sum(math.prod(tensor.shape) for tensor in self.text.job.model.tensors()) > _INPUT_ELEMENTS:
            return []
        what = f'f"giving {{name}} to {to}"'
        return [f"handed_out.extend(({what}, array, array.copy()) for name, array in {arrays}.items())"]

    def _dtype(self) -> str:
        assert self.text.job.model is not None
        return self.text.job.model.dtype

    def _batch(self, op: Backward | Predict) -> None:
        self.text.needs("contract.adapter", "Batch")
        samples = [list(rank) for rank in op.samples]
        branches = f", {[tuple(rank) for rank in op.branches]}[rank]" if any(op.branches) else ""
        weights = f", weights={self._weights(op)}" if isinstance(op, Backward) and op.weights else ""
        self.text.add(
            f"samples = {samples}[rank]", f"batch = Batch(INPUTS[samples], TARGETS[samples]{branches}{weights})"
        )
        if any(not rank for rank in samples):
            self.text.lines[-2] = f"samples = np.array({samples}[rank], int)"

    def _weights(self, op: Backward) -> str:
        return f'np.array({[list(rank) for rank in op.weights]}[rank], "{self._dtype()}")'
