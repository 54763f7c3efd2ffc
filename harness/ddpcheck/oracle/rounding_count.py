"""The number of roundings between inputs and results of a network, and the network's width."""

from __future__ import annotations

from ..models.spec import Activation, Activity, Delay, Embedding, Head, Linear, ModelSpec, Scale


def roundings(model: ModelSpec, rows: int) -> int:
    """The most roundings between a parameter or input and any gradient or loss of a batch of `rows` samples.

    A product has one rounding more than its factors together; a sum of n terms has n - 1 more than its terms. tanh, exp
    and log count as 4 roundings each (two ulp), so tanh' = 1 - tanh^2 counts as 12. Backward has the same sums,
    transposed; at the end a weight's gradient multiplies an adjoint with an activation and adds over the rows. An
    auxiliary term is a sum of its own, times its coefficient, and one more addition where it is added.
    """
    inward = outward = terms = 0
    for layer in model.layers:
        if isinstance(layer, Linear):
            inward += layer.inputs + 2
            outward += layer.outputs + 2
            terms += (layer.inputs * layer.outputs + 4) * bool(layer.penalty)
        elif isinstance(layer, Head):
            inward, outward, terms = inward + layer.inputs + 2, outward + layer.outputs + 2, terms + 3
        elif isinstance(layer, Activity):
            outward, terms = outward + 3, terms + widest(model) + 4
        elif isinstance(layer, Activation):
            outward += (inward + 13) if layer.function == "tanh" else 0
            inward += 4 if layer.function == "tanh" else 0
        elif not isinstance(layer, (Delay, Embedding)):
            inward, outward = inward + 1, outward + 1
    loss = 16 + model.output_features  # softmax dominates: a shift by the largest (2 u s = 8 u s/4), exp, sum, division
    summed = rows * (
        widest(model) if any(isinstance(layer, Scale) and not layer.features for layer in model.layers) else 1
    )
    uses = sum(isinstance(layer, Linear) for layer in model.layers)
    return 2 * inward + outward + loss + terms + summed + uses + 3


def widest(model: ModelSpec) -> int:
    """The largest number of features that any layer takes or returns."""
    found = [model.input_features, model.output_features]
    for layer in model.layers:
        if isinstance(layer, (Linear, Head)):
            found += [layer.inputs, layer.outputs]
        elif not isinstance(layer, (Activation, Delay, Activity)):
            found.append(layer.features)
    return max(found)
