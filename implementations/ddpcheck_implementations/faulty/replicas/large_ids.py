"""Replicas that store ids and labels in too few bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ddpcheck.contract.adapter import Batch

from ..base import PlainReplica
from ..engine.fault import Fault, table
from ..engine.replicas import given, has_labels, takes_ids

BYTES = "check_ids_and_labels_may_exceed_16_bits"


@given("backward")
def ids_as_int16(replica: PlainReplica, batch: Batch) -> Batch:
    """Ids past 32,767 become negative and count from the end."""
    return replace(batch, inputs=batch.inputs.astype(np.int16).astype(np.int64))


@given("backward")
def labels_as_int8(replica: PlainReplica, batch: Batch) -> Batch:
    return replace(batch, targets=batch.targets.astype(np.int8).astype(np.int64))


@given("backward")
def ids_as_float16(replica: PlainReplica, batch: Batch) -> Batch:
    """Like autocast: some ids past 2,048 are rounded to a neighbour."""
    with np.errstate(over="ignore"):
        halves = batch.inputs.astype(np.float16)
    return replace(batch, inputs=np.where(np.isfinite(halves), halves, batch.inputs).astype(np.int64))


# fmt: off
table(
    globals(),
    Fault("ids-in-two-bytes", "Embedding ids are converted to int16.",
          where=takes_ids, effect=ids_as_int16,
          caught_by=BYTES, cause="ids-narrowed"),
    Fault("labels-in-a-signed-byte", "Labels are converted to int8.",
          where=has_labels, effect=labels_as_int8,
          caught_by=BYTES, cause="ids-narrowed"),
    Fault("large-ids-in-half-precision", "Embedding ids are converted to float16, which rounds those past 2,048.",
          where=takes_ids, effect=ids_as_float16,
          caught_by=BYTES, cause="ids-narrowed"),
)
# fmt: on
