"""The function that runs each operation on a rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import job as ops
from . import collectives, randomness, rank_failures, repeated_calls, replica, sampling, scoring, training
from .gradient_probe import probe_gradients
from .process_resources import count_resources
from .process_settings import ProcessSettings, draw_from_all
from .rank_state import RankState, Values
from .result_validation import ContractViolation


def on_ranks(rank_state: RankState, op: ops.OnRanks) -> Values:
    return RUNNERS[type(op.operation)](rank_state, op.operation) if rank_state.rank in op.ranks else {}


def attempt(rank_state: RankState, op: ops.Attempt) -> Values:
    try:
        RUNNERS[type(op.operation)](rank_state, op.operation)
    except ContractViolation:
        raise
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": ""}


def rounds(rank_state: RankState, op: ops.Rounds) -> Values:
    found, changed = [count_resources()], []
    for number in range(op.rounds):
        ProcessSettings.at_first().restore()
        program = ProcessSettings()
        for operation in op.operations * op.times:
            rank_state.progress(rank_state.position)
            RUNNERS[type(operation)](rank_state, operation)
            rank_state.forget()
        changed.append(ProcessSettings().changed(program))
        found.append(count_resources(found[-1], op.times if number else 0))  # the first round may fill caches
    return {"changed": changed, "held": found}


def make(rank_state: RankState, op: ops.Make) -> Values:
    found: Values = {"changed": [], "before": [], "after": []}
    for number in range(op.times):
        rank_state.progress(rank_state.position)
        ProcessSettings.at_first().restore()
        draw_from_all(rank_state.rank + number)  # after an equal seed the states differ, too
        program = ProcessSettings()
        rank_state.held.renew()
        now = ProcessSettings()
        found["changed"].append(now.changed(program))
        found["before"].append(program.generators())
        found["after"].append(now.generators())
    return found


RUNNERS: dict[type[ops.Operation], Callable[[RankState, Any], Values]] = {
    ops.Backward: replica.backward,
    ops.ZeroGrad: replica.zero_grad,
    ops.OpenWindow: replica.open_window,
    ops.CloseWindow: replica.close_window,
    ops.Clip: replica.clip,
    ops.Step: replica.step,
    ops.Observe: replica.observe,
    ops.Predict: replica.predict,
    ops.Save: replica.save,
    ops.Resume: replica.resume,
    ops.Switch: replica.switch,
    ops.SetTrainable: replica.set_trainable,
    ops.Join: replica.join,
    ops.Remeasure: replica.remeasure,
    ops.MeasureSteps: replica.measure_steps,
    ops.Calls: repeated_calls.calls,
    ops.AllReduce: collectives.all_reduce,
    ops.Wait: collectives.wait,
    ops.Broadcast: collectives.broadcast,
    ops.AllGather: collectives.all_gather,
    ops.ReduceScatter: collectives.reduce_scatter,
    ops.Barrier: collectives.barrier,
    ops.SendRecv: collectives.send_recv,
    ops.MeasureCollective: collectives.measure_collective,
    ops.Sample: sampling.sample,
    ops.ResumeSampling: sampling.resume_sampling,
    ops.Aggregate: sampling.aggregate,
    ops.Score: scoring.score,
    ops.Draw: randomness.draw,
    ops.Disturb: randomness.disturb,
    ops.Train: training.train,
    ops.Sleep: rank_failures.sleep,
    ops.Raise: rank_failures.raise_,
    ops.Kill: rank_failures.kill,
    ops.Leave: rank_failures.leave,
    ops.Close: rank_failures.close,
    ops.Left: rank_failures.left,
    ops.Sent: rank_failures.sent,
    ops.ShortReads: rank_failures.short_reads,
    ops.SmallBuffers: rank_failures.small_buffers,
    ops.WatchCollectives: rank_failures.watch_collectives,
    ops.BreakConnections: rank_failures.connections_break,
    ops.ProbeGradients: probe_gradients,
    ops.OnRanks: on_ranks,
    ops.Attempt: attempt,
    ops.Make: make,
    ops.Rounds: rounds,
}
