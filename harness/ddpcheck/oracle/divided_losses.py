"""Bounds on gradients if each rank divides its loss before backward, instead of its gradients after it.

Let c be the divisor, g the computed gradient of the whole loss, and h that of the divided one. Both forward passes give
the same bits. Both backward passes multiply adjoints with the same numbers of the forward pass, and add the same terms:
both are one sum of products, except for the factor 1/c. Only the roundings of adjoints differ: in each product and sum
of backward, and in the division. With k of these at most on the way to a gradient, S the sum of |products| of exact
forward values, and m roundings in all, by which a computed forward value may be larger:

    |c h - g| <= |c h - exact| + |g - exact| <= 2 gamma_k (1 + gamma_m) S

where `exact` is backward without rounding through the computed forward pass. S is bounded by the majorant network
(network.py). Division by a power of two rounds nothing, so h = g / c. Batch norm has no majorant, so its models have no
bound.
"""

from __future__ import annotations

import numpy as np

from ..contract import Capabilities
from ..job import Backward, Job
from ..models.spec import Activation, Activity, Delay, Embedding, Head, Linear, ModelSpec, Scale
from ..numerics import gamma
from ..seeded_values import Array
from .job_constants import Case
from .network import evaluate, has_majorant
from .rounding_count import roundings, widest


def of_divided_losses(job: Job, backward: Backward, promised: Capabilities) -> dict[str, Array]:
    """Bounds (ranks, *shape) on |c h - g| of every gradient in this backward, the first of a new replica."""
    case = Case(job, promised)
    values = {name: value.exact for name, value in case.start(bounds=False).items()}
    learned = {name: values[name] for name, tensor in case.described.items() if tensor.role == "learned"}
    if not has_majorant(case.model):
        return {name: np.full(array.shape, np.inf) for name, array in learned.items()}
    shards = case.shards(backward.samples, backward.branches)
    fixed = {name: array for name, array in values.items() if name not in learned}
    sums = evaluate(case.model, learned, fixed, shards, majorant=True).gradients
    rows, dtype = shards.inputs.shape[1], case.model.dtype
    factor = 2 * gamma(backward_roundings(case.model, rows), dtype) * (1 + gamma(roundings(case.model, rows), dtype))
    return {name: factor * total for name, total in sums.items()}


def backward_roundings(model: ModelSpec, rows: int) -> int:
    """The most roundings of an adjoint on the way from the loss to any gradient, for given forward values."""
    count = 0
    for layer in model.layers:
        if isinstance(layer, (Linear, Head)):
            count += layer.outputs + 2
        elif isinstance(layer, Activity):
            count += 3
        elif isinstance(layer, Activation):
            count += 1  # times a derivative in either case
        elif not isinstance(layer, (Delay, Embedding)):
            count += 1
    scalars = any(isinstance(layer, Scale) and not layer.features for layer in model.layers)
    summed = rows * (widest(model) if scalars else 1)
    uses = sum(isinstance(layer, Linear) for layer in model.layers)
    penalties = 2 * any(isinstance(layer, Linear) and layer.penalty for layer in model.layers)
    loss = 4 + model.output_features  # division by c and by the rows, weighting, and softmax's sum over the outputs
    return count + summed + uses + penalties + loss
