"""Operations that read samplers and aggregate metrics."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from .. import job as ops
from .randomness import disturb_generators
from .rank_state import RankState, Values
from .result_validation import ContractViolation, checked_indices, checked_number, offered, offered_method

_SAMPLER = "the sampler"


def sample(rank_state: RankState, op: ops.Sample) -> Values:
    make = offered(rank_state.facets.make_sampler, "make_sampler")
    sampler = make(op.length, shuffle=op.shuffle, seed=op.seed, drop_last=op.drop_last)
    others = [
        (make(length, shuffle=op.shuffle, seed=seed, drop_last=op.drop_last), later)
        for length, seed, later in op.others()
    ]
    length = len(sampler)
    epochs = []
    for number, epoch in enumerate(op.epochs):
        rank_state.progress(rank_state.position)
        if number and op.disturbed is not None:
            disturb_generators(op.disturbed, rank_state.rank, rank_state.job.world_size)
        if peek := op.peeks[rank_state.rank] if op.peeks else 0:
            if epoch is not None:
                sampler.set_epoch(epoch)
            list(islice(iter(sampler), peek))
        if epoch is not None:
            if op.retold:
                sampler.set_epoch(epoch + 3)
            sampler.set_epoch(epoch)
        for other, later in others:
            other.set_epoch((epoch or 0) + later)
            list(other)
        epochs.append(checked_indices(sampler, op.length, _SAMPLER))
    return {"epochs": epochs, "length": len(sampler), "length_before": length}


def resume_sampling(rank_state: RankState, op: ops.ResumeSampling) -> Values:
    make = offered(rank_state.facets.make_sampler, "make_sampler")

    def new() -> Any:
        return make(op.length, shuffle=op.shuffle, seed=op.seed, drop_last=op.drop_last)

    first = sampler = new()
    if op.used:
        sampler.set_epoch(op.epoch + 1)
        list(sampler)
    sampler.set_epoch(op.epoch)
    reading = iter(()) if op.used else iter(sampler)
    begun = None if op.used else reading
    pieces, saved = [], []
    for count in op.counts(rank_state.rank):
        pieces.append(_next(reading, count))
        for _ in range(1 + op.at_once):
            state = offered_method(sampler, "state")()
            if not isinstance(state, Mapping):
                raise ContractViolation(f"the sampler's state() must return a mapping, got {type(state).__name__}")
            kept = copy.deepcopy(dict(state))
            saved += [(state, repr(kept)), (kept, repr(kept))]
            sampler = new()
            offered_method(sampler, "load_state")(kept)
            if op.told:
                sampler.set_epoch(op.epoch)
        reading = iter(sampler)
    pieces.append(_next(reading))
    if op.then is not None:
        sampler.set_epoch(op.then)
    told_length = len(sampler)
    orders = {"then": list(sampler)}
    if op.then is not None:
        last, _ = saved[-1]
        sampler = new()
        sampler.load_state(last)
        sampler.set_epoch(op.then)
        orders["straight"] = list(sampler)
    whole = new()
    whole.set_epoch(op.epoch)
    orders |= {"whole": list(whole), "on": list(first) if begun is None else _next(begun)}
    if op.then is not None:
        whole.set_epoch(op.then)
    orders["then_whole"] = list(whole)
    checked = {name: checked_indices(order, op.length, _SAMPLER) for name, order in orders.items()}
    return {
        "pieces": [checked_indices(piece, op.length, _SAMPLER) for piece in pieces],
        "then_length": told_length,
        "state_changed": any(repr(dict(state)) != text for state, text in saved),
    } | checked


def _next(reading: Iterator[Any], count: int | None = None) -> list[Any]:
    """Return the next `count` indices, or all that are left, without iter(), which would restart some samplers."""
    found: list[Any] = []
    while count is None or len(found) < count:
        try:
            found.append(next(reading))
        except StopIteration:
            break
    return found


def aggregate(rank_state: RankState, op: ops.Aggregate) -> Values:
    what = "aggregate_metrics()"
    given = op.given(rank_state.rank)
    got = offered(rank_state.facets.aggregate_metrics, "aggregate_metrics")(given, op.counts[rank_state.rank])
    if not isinstance(got, Mapping):
        raise ContractViolation(f"{what} must return a mapping of names to numbers, got {type(got).__name__}")
    changed = any(repr(dict(earlier)) != text for earlier, text in rank_state.aggregated)
    rank_state.aggregated.append((got, repr(dict(got))))
    return {
        "metrics": {str(name): checked_number(value, what) for name, value in got.items()},
        "argument_changed": repr(given) != repr(op.given(rank_state.rank)),
        "earlier_changed": changed,
    }
