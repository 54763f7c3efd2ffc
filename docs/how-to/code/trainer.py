"""A training loop as the facet `trainer`: it gets a task, trains, and reports parameters, losses and the samples that it used."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from ddpcheck import TrainingRun
from ddpcheck.pytorch.adapter import torch_adapter


def train(task):
    from ddpcheck.pytorch.model import array_of, build_model, loss_of, tensor_of
    from ddpcheck.pytorch.replica import make_optimizer

    module = build_model(task.model, task.initial)
    model, loss_of_batch = DistributedDataParallel(module), loss_of(task.model.loss, task.model.loss_scale)
    optimizer = make_optimizer([p for p in module.parameters() if p.requires_grad], task.optimizer)
    data = TensorDataset(tensor_of(task.inputs), tensor_of(task.targets), torch.arange(len(task.inputs)))
    sampler = DistributedSampler(data, shuffle=task.shuffle, seed=task.seed)
    losses, indices = [], []
    for _ in range(task.epochs):  # the fault: no sampler.set_epoch(), so every epoch has the order of the first
        total, used = 0.0, []
        for inputs, targets, numbers in DataLoader(data, task.batch_size, sampler=sampler):
            optimizer.zero_grad()
            loss = loss_of_batch(model(inputs), targets)
            loss.backward()
            if task.max_norm is not None:
                torch.nn.utils.clip_grad_norm_(module.parameters(), task.max_norm)
            optimizer.step()
            total += loss.item() * len(numbers)
            used += numbers.tolist()
        sums = torch.tensor([total, len(used)], dtype=torch.float64)
        dist.all_reduce(sums)
        losses.append(float(sums[0] / sums[1]))
        indices.append(used)
    parameters = {name: array_of(parameter) for name, parameter in module.named_parameters()}
    return TrainingRun(parameters, losses, indices)


adapter = torch_adapter("my_loop", trainer=train)
