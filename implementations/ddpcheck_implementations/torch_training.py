"""A typical training run in torch: DistributedSampler, DataLoader, DDP with no_sync, LambdaLR, torch.save."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from ddpcheck.contract.trainer import TrainingRun, TrainingTask
from ddpcheck.pytorch.auxiliary_terms import loss_of_model
from ddpcheck.pytorch.facets import device_of_backend
from ddpcheck.pytorch.model import array_of, build_model, tensor_of
from ddpcheck.pytorch.replica import make_optimizer
from ddpcheck.seeded_values import Array

Batch = tuple[Tensor, Tensor, Tensor]
"""Inputs, targets, and the samples' indices."""


class Run:
    """One task on one rank. A checkpoint has `epoch`, `lowest`, `best` and the states of torch's objects."""

    def __init__(self, task: TrainingTask) -> None:
        self.task = task
        self.device = device_of_backend()
        self.module = build_model(task.model, task.initial).to(self.device)
        self.model = DistributedDataParallel(self.module)
        self.loss = loss_of_model(task.model, self.module)
        self.learned = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        self.optimizer = make_optimizer(self.learned, task.optimizer)
        data = TensorDataset(tensor_of(task.inputs), tensor_of(task.targets), torch.arange(len(task.inputs)))
        self.sampler: DistributedSampler[Any] = DistributedSampler(data, shuffle=task.shuffle, seed=task.seed)
        self.loader: DataLoader[Any] = DataLoader(data, task.batch_size, sampler=self.sampler)
        steps = task.epochs * -(-len(self.loader) // task.micro_batches)
        linear = task.schedule == "linear"
        self.factor: Callable[[int], float] = lambda step: (steps - step) / steps if linear else 1.0
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.factor)
        self.epoch = 0
        self.lowest = float("inf")
        self.best: Mapping[str, Array] = {}
        self.rates: list[float] = []

    def __call__(self) -> TrainingRun:
        if self.task.resume:
            self.load()
        losses, indices = [], []
        for epoch in range(self.epoch, self.task.stop_after or self.task.epochs):
            self.sampler.set_epoch(epoch)
            order: list[int] = []
            total = 0.0
            for window in self.windows():
                order += [int(number) for *_, numbers in window for number in numbers]
                total += self.step(window)
            losses.append(self.mean(total, len(order)))
            indices.append(order)
            self.epoch = epoch + 1
            if losses[-1] < self.lowest:
                self.lowest, self.best = losses[-1], self.parameters()
            self.save()
            if self.task.patience and len(losses) - 1 - losses.index(min(losses)) >= self.task.patience:
                break
        best = (self.best or self.parameters()) if self.task.keep_best else None
        return TrainingRun(self.parameters(), losses, indices, self.rates, best)

    def windows(self) -> Iterator[list[Batch]]:
        """Yield the micro-batches of each optimizer step; the last window of an epoch may be short."""
        window: list[Batch] = []
        for batch in self.loader:
            window.append(tuple(batch))
            if len(window) == self.task.micro_batches:
                yield window
                window = []
        if window:
            yield window

    def step(self, window: list[Batch]) -> float:
        """Take one optimizer step. Returns the sum of the losses of this rank's samples."""
        samples = sum(len(numbers) for *_, numbers in window)
        total = 0.0
        self.optimizer.zero_grad()
        for position, (inputs, targets, numbers) in enumerate(window, start=1):
            with nullcontext() if position == len(window) else self.model.no_sync():
                loss = self.loss(self.model(inputs.to(self.device)), targets.to(self.device)) * len(numbers)
                (loss / samples).backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
            total += loss.item()
        if self.task.max_norm is not None:
            nn.utils.clip_grad_norm_(self.learned, self.task.max_norm)
        self.rates.append(float(self.optimizer.param_groups[0]["lr"]))
        self.optimizer.step()
        self.schedule.step()
        return total

    def mean(self, total: float, samples: int) -> float:
        """The mean loss over the samples of all ranks."""
        sums = torch.tensor([total, samples], dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        return float(sums[0] / sums[1])

    def parameters(self) -> Mapping[str, Array]:
        return {name: array_of(parameter) for name, parameter in self.module.named_parameters()}

    # --------------------------------------------------------------------------------------------------- checkpoints

    def save(self) -> None:
        """Rank 0 writes a temporary file and renames it, so the checkpoint is always complete."""
        if self.task.folder is None or dist.get_rank():
            return
        folder = Path(self.task.folder)
        folder.mkdir(parents=True, exist_ok=True)
        state = {
            "model": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": {name: value for name, value in self.schedule.state_dict().items() if name != "lr_lambdas"},
            "epoch": self.epoch,
            "lowest": self.lowest,
            "best": {name: tensor_of(array) for name, array in self.best.items()},
        }
        torch.save(state, folder / "checkpoint.half")
        (folder / "checkpoint.half").replace(folder / "checkpoint.pt")

    def load(self) -> None:
        """Resume from rank 0's checkpoint, if rank 0 finds one; the other ranks do not look for it."""
        assert self.task.folder is not None
        path = Path(self.task.folder, "checkpoint.pt")
        found: list[Any] = [None]
        if dist.get_rank() == 0 and path.exists():
            found = [torch.load(path, map_location="cpu", weights_only=True)]
        dist.broadcast_object_list(found, device=self.device)
        (state,) = found
        if state is None:
            return
        self.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict({**state["schedule"], "lr_lambdas": [None]})
        # the loaded rate is that of the saved run's schedule, which may have been for fewer epochs
        for group, base in zip(self.optimizer.param_groups, self.schedule.base_lrs, strict=True):
            group["lr"] = base * self.factor(self.schedule.last_epoch)
        self.epoch, self.lowest = state["epoch"], state["lowest"]
        self.best = {name: array_of(tensor) for name, tensor in state["best"].items()}


def train(task: TrainingTask) -> TrainingRun:
    return Run(task)()
