"""Gradients that are averaged in fewer bits than the model's: how they are rounded.

The allowed error of a mean is larger than the error of a cut, so only the direction of all errors shows one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddpcheck.causes import values as causes
from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, needs
from ddpcheck.contract.needs import Need
from ddpcheck.job import Backward, Job, ZeroGrad
from ddpcheck.models.spec import Linear, ModelSpec
from ddpcheck.oracle import Oracle
from ddpcheck.seeded_values import Array
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding

from ..drawing import for_each
from ..explicit_examples import fitting
from ..judges import Judge
from ..strategies import GRADIENTS, training_job
from .comparison import as_one_process, when

if TYPE_CHECKING:
    from ddpcheck.session import Session

INPUTS, OUTPUTS = 64, 32
FEWEST = 256
"""Errors whose direction is judged: if each is as likely up as down, all have the same by chance in 1 of 2^255 models."""
NORMAL = 2.0**-14
"""The smallest normal number of float16: smaller ones may become zero."""
_FROM_FLOAT32 = 2.0**-16
"""A relative error above that of float32, and below that of float16."""


def _fewer_bits(capabilities: Capabilities, world_size: int) -> str | None:
    """Gradients are averaged in fewer bits than the model's."""
    if not capabilities.replica.offered:
        return "facet replica is not promised"
    return "reduction_dtype is model" if capabilities.replica.reduction_dtype == "model" else None


fewer_bits = Need("replica.reduction_dtype=bfloat16, or float16", _fewer_bits, "replica")


@law("gradients", needs.replica, needs.replica.replica_dtypes("float32"), fewer_bits, needs.ranks(2, most=2))
def check_gradients_in_fewer_bits_are_not_cut(session: Session) -> None:
    """Gradients that are averaged in bfloat16 or float16 are rounded up as well as down: not all of many are nearer to zero
    than the exact ones.
    """
    batch = ((0, 1, 2),) * session.world_size  # equal parts, so that errors of ranks have one direction
    model = ModelSpec((Linear("fc1", INPUTS, OUTPUTS),), loss="linear")
    job = training_job(session.world_size, model, [ZeroGrad(), Backward(batch), *GRADIENTS], exact=False)
    for_each(session, fitting(session, [job]), _not_cut(session.capabilities))


def _not_cut(promised: Capabilities) -> Judge:
    within_bounds = as_one_process(promised)

    def judge(job: Job, trace: Trace) -> None:
        within_bounds(job, trace)
        for known in Oracle(job, promised).walk():
            for name, entry in known.arrays.get("gradients", {}).items():
                for rank, seen in enumerate(trace.values(known.position, "gradients")):
                    rounded = _rounding_errors(seen[name], entry.value.exact[rank])
                    if rounded.size >= FEWEST and (rounded < 0).all():
                        raise Finding(
                            Diagnosis(
                                f"gradient of {name} ({when(job, known.position)}) on rank {rank}: all {rounded.size:,} "
                                "elements that are rounded are nearer to zero than the exact ones",
                                (causes.CUT_NOT_ROUNDED(),),
                            )
                        )

    return judge


def _rounding_errors(got: Array, exact: Array) -> Array:
    """Flat, of the elements that fewer bits than those of float32 have rounded: below 0 towards zero, above 0 away from it."""
    sizes = np.abs(exact)
    errors = np.abs(got.astype(np.float64)) - sizes
    rounded: Array = errors[(sizes >= NORMAL) & (np.abs(errors) > _FROM_FLOAT32 * sizes)]
    return rounded
