"""Annealed gradient noise after the backward; each rank has a seed of its own for dropout."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def add_noise(model, step, eta=0.02, gamma=0.55, generator=None):
    std = (eta / (1 + step) ** gamma) ** 0.5
    for p in model.parameters():
        p.grad.add_(torch.randn(p.shape, generator=generator), alpha=std)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(10 + rank)
    common = torch.Generator().manual_seed(3)
    x = torch.randn(320, 20, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, x[:, :5].argmax(1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 5)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = 0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            add_noise(model, step)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
        if rank == 0:
            print(epoch, loss.item(), common.initial_seed(), flush=True)
    dist.destroy_process_group()


main()
