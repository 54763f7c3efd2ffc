"""Ids and labels that are sent, or kept, in fewer bits than they need."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ddpcheck.contract.adapter import Batch

from ..base import PlainReplica, fault

BYTES = "check_ids_and_labels_may_exceed_16_bits"


@fault("ids-in-two-bytes", BYTES, cause="ids-narrowed")
class IdsInTwoBytes(PlainReplica):
    """Batches of ids travel to the accelerator as int16; a negative one counts from the end."""

    def backward(self, batch: Batch) -> float:
        if batch.inputs.dtype.kind == "i":
            batch = replace(batch, inputs=batch.inputs.astype(np.int16).astype(np.int64))
        return super().backward(batch)


@fault("labels-in-a-signed-byte", BYTES, cause="ids-narrowed")
class LabelsInAByte(PlainReplica):
    """Labels are kept as int8, which is enough for ten classes."""

    def backward(self, batch: Batch) -> float:
        if batch.targets.dtype.kind == "i":
            batch = replace(batch, targets=batch.targets.astype(np.int8).astype(np.int64))
        return super().backward(batch)


@fault("large-ids-in-half-precision", BYTES, cause="ids-narrowed")
class IdsInHalfPrecision(PlainReplica):
    """Ids go through autocast along with the other inputs: past 2048 some are their neighbours."""

    def backward(self, batch: Batch) -> float:
        if batch.inputs.dtype.kind == "i":
            with np.errstate(over="ignore"):
                halves = batch.inputs.astype(np.float16)
            ids = np.where(np.isfinite(halves), halves, batch.inputs).astype(np.int64)
            batch = replace(batch, inputs=ids)
        return super().backward(batch)
