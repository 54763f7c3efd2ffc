"""The traffic of equal training steps: constant, and compared with the least that steps need."""

from __future__ import annotations

from ddpcheck.causes import traffic as causes
from ddpcheck.contract import Capabilities
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.processes import OF_GROWING_BYTES
from ddpcheck.hypotheses.traffic import GrowingBytes
from ddpcheck.job import Backward, DataSpec, Job, Operation, OptimizerSpec, Step, ZeroGrad
from ddpcheck.models.spec import Linear, ModelSpec
from ddpcheck.operations.probes import Sent
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding

from .counts import begun, counted
from .traffic_limits import HEADERS, Demand

STEPS = 6
_LAYERS = 6
"""Layers of two parameters each, together 300 KB."""
_MODEL = ModelSpec(tuple(Linear(f"fc{number}", 112, 112) for number in range(_LAYERS)), "linear")
_RATE = 2.0**-80
"""The gradients are whole numbers that grow from layer to layer: larger steps diverge."""
_TIMES = 1.5
"""A layout that changes after the first step may change the bytes and packets a little."""
_PACKETS = 16


def equal_steps(world_size: int, promised: Capabilities) -> Job:
    """Steps on the same samples, with Sent before and after each; the optimizer's own step where it is promised."""
    samples = tuple((rank,) for rank in range(world_size))
    offered = promised.replica.optimizers
    step = (Step(),) if offered else ()
    each: tuple[Operation, ...] = (ZeroGrad(), Backward(samples), *step, Sent())
    # the first step may set up resources for later ones
    operations = (*each, *each * STEPS)
    optimizer = OptimizerSpec("sgd" if "sgd" in offered or not offered else "adam", lr=_RATE)
    return Job(world_size, operations, model=_MODEL, data=DataSpec(world_size), optimizer=optimizer)


def judged(job: Job, trace: Trace) -> str:
    """The traffic of a step, as a sentence. Finding if later steps send more; CannotTell without counts."""
    arrays = job.initial(0).values()
    demand = Demand("all_reduce", sum(array.nbytes for array in arrays), range(job.world_size), "", each=False)
    seen = counted(trace, demand.least)
    sent = [sum(rank[step] for rank in seen.bytes) for step in range(STEPS)]
    messages = [max(rank[step] for rank in seen.messages) for step in range(STEPS)]
    details = (f"bytes step by step: {', '.join(f'{count:,}' for count in sent)}", *(seen.note,) * bool(seen.note))
    if sent[-1] > _TIMES * sent[0] + HEADERS * job.world_size:
        headline = (
            f"step {STEPS + 1} sent {sent[-1]:,} bytes over all ranks, but should send as many as step 2, {sent[0]:,}"
        )
        found = first_cause(OF_GROWING_BYTES, GrowingBytes(sent, demand.least))
        raise Finding(Diagnosis(headline, found, details=details))
    if messages[-1] > _TIMES * messages[0] + _PACKETS:
        headline = (
            f"step {STEPS + 1} sent {messages[-1]} messages on a rank, but should send as many as step 2, {messages[0]}"
        )
        cause = causes.MESSAGES_GROW_WITH_STEPS(first=messages[0], last=messages[-1], steps=STEPS)
        raise Finding(Diagnosis(headline, (cause,), details=details))
    own = [max(rank[-1:], default=0) for rank in begun(trace)]
    number, unit = (max(own), "collective") if any(own) else (messages[-1], "packet")
    parts = f"{number} {unit}{'s' * (number != 1)}"
    return (
        f"a training step sends {sent[-1] / demand.least:.1f} x the fewest bytes that its gradients need, in {parts} on a rank, "
        f"for {len(job.initial(0))} tensors"
    )
