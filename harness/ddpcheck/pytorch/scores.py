"""Scores over the samples of all ranks with torch.distributed, for torch_adapter(scores=torch_scores)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from ..seeded_values import Array
from .facets import device_of_backend
from .model import tensor_of


def compute_score(name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """The score `name` of the samples of all ranks. Each counts once, index -1 never; NaN if there are none.

    Sums are kept in float64 and added up in one all-reduce.
    """
    if name not in _SCORES:
        raise ValueError(f"there is no score {name!r} here; choose one of {', '.join(sorted(_SCORES))}")
    device = device_of_backend()
    own = _counted_here(tensor_of(indices).to(device))
    return _SCORES[name](tensor_of(outputs).to(device, torch.float64)[own], tensor_of(targets).to(device)[own])


def _counted_here(indices: Tensor) -> Tensor:
    """Whether each of this rank's samples counts here: on the first rank that has it, at its first position."""
    everyone = _from_ranks(indices)
    before = set(torch.cat(everyone[: dist.get_rank()]).tolist()) if dist.get_rank() else set()
    counted = []
    for index in indices.tolist():
        counted.append(index >= 0 and index not in before)
        before.add(index)
    return torch.tensor(counted, dtype=torch.bool, device=indices.device)


def _from_ranks(tensor: Tensor) -> list[Tensor]:
    """Every rank's one-dimensional tensor; lengths may differ."""
    length = torch.tensor([len(tensor)], device=tensor.device)
    lengths = [torch.empty_like(length) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, length)
    padded = tensor.new_zeros(int(max(lengths)))
    padded[: len(tensor)] = tensor
    everyone = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(everyone, padded)
    return [each[: int(size)] for each, size in zip(everyone, lengths, strict=True)]


def _mean(total: Tensor, count: int) -> float:
    """The mean over all ranks, from this rank's sum and number of terms."""
    sums = torch.stack([total.double(), total.new_tensor(count, dtype=torch.float64)])
    dist.all_reduce(sums)
    return float(sums[0] / sums[1])  # 0 / 0 is NaN


def _accuracy(outputs: Tensor, labels: Tensor) -> float:
    return _mean((outputs.argmax(dim=1) == labels).sum(), len(outputs))


def _perplexity(outputs: Tensor, labels: Tensor) -> float:
    return math.exp(_mean(functional.cross_entropy(outputs, labels, reduction="sum"), len(outputs)))


def _rmse(outputs: Tensor, targets: Tensor) -> float:
    return math.sqrt(_mean(functional.mse_loss(outputs, targets.double(), reduction="sum"), outputs.numel()))


def _f1_macro(outputs: Tensor, labels: Tensor) -> float:
    classes, guesses = outputs.shape[1], outputs.argmax(dim=1)
    counts = [torch.bincount(of, minlength=classes) for of in (labels[guesses == labels], guesses, labels)]
    sums = torch.stack(counts).double()
    dist.all_reduce(sums)
    occurring = sums[1] + sums[2] > 0
    return float((2 * sums[0] / (sums[1] + sums[2]))[occurring].mean())  # NaN if no class occurs


def _auc(outputs: Tensor, labels: Tensor) -> float:
    margins = torch.cat(_from_ranks(outputs[:, 1] - outputs[:, 0]))
    positive = torch.cat(_from_ranks(labels)) == 1
    negatives = margins[~positive].sort().values
    sides = [torch.searchsorted(negatives, margins[positive], right=right) for right in (False, True)]
    return float(torch.cat(sides).double().mean() / len(negatives)) if len(negatives) else math.nan


_SCORES: dict[str, Callable[[Tensor, Tensor], float]] = {
    "accuracy": _accuracy,
    "auc": _auc,
    "f1_macro": _f1_macro,
    "perplexity": _perplexity,
    "rmse": _rmse,
}
