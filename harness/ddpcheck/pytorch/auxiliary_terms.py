"""The loss of a ModelSpec with its auxiliary terms, in torch."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..models.spec import Activity, Head, Linear, ModelSpec
from .model import Loss, loss_of


def loss_of_model(model: ModelSpec, module: nn.Module) -> Loss:
    """The loss function. module: built by build_model; its weights may have penalties."""
    of_outputs = loss_of(model.loss, model.loss_scale)
    layers = [layer for layer in model.layers if isinstance(layer, (Activity, Head))]
    penalised = [layer for layer in model.layers if isinstance(layer, Linear) and layer.penalty]
    if not layers and not penalised:
        return of_outputs

    def loss(outputs: Any, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        y, *beside = outputs if layers else (outputs,)
        total = of_outputs(y, targets, weights)
        shares = _shares(y, model.loss_scale, weights)
        for layer, x in zip(layers, beside, strict=True):
            if isinstance(layer, Head):
                total = total + layer.coefficient * of_outputs(x, targets, weights)
            else:
                total = total + layer.coefficient / 2 * (x.square().sum(1) * shares).sum()
        for linear in penalised:
            weight: Any = module.get_submodule(linear.name).weight
            total = total + float(shares.sum()) * linear.penalty / 2 * weight.square().sum()
        return total

    return loss


def _shares(outputs: Tensor, scale: float, weights: Tensor | None) -> Tensor:
    """The weight of each sample in the loss."""
    if weights is None:
        return outputs.new_full((len(outputs),), scale / max(len(outputs), 1))
    return weights * (scale / (float(weights.sum()) or 1.0))
