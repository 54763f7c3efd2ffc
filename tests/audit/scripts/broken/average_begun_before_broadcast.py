"""A regressor of tide levels, evaluated with a moving average of its weights."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Average:
    def __init__(self, model, keep=0.9):
        self.keep = keep
        self.weights = [each.detach().clone() for each in model.parameters()]

    @torch.no_grad()
    def follow(self, model):
        for own, new in zip(self.weights, model.parameters(), strict=True):
            own.mul_(self.keep).add_(new, alpha=1 - self.keep)

    @torch.no_grad()
    def exchange(self, model):
        for place, parameter in enumerate(model.parameters()):
            held = parameter.clone()
            parameter.copy_(self.weights[place])
            self.weights[place] = held


def tides(count, seed):
    generator = torch.Generator().manual_seed(seed)
    hours = 48 * torch.rand(count, 1, generator=generator)
    moon = torch.rand(count, 1, generator=generator)
    level = torch.sin(hours / 1.98) * (0.6 + 0.4 * moon) + 0.05 * torch.randn(count, 1, generator=generator)
    return TensorDataset(torch.cat([torch.sin(hours / 1.98), torch.cos(hours / 1.98), moon], 1), level)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(400 + dist.get_rank())
    net = nn.Sequential(nn.Linear(3, 24), nn.Tanh(), nn.Linear(24, 1))
    average = Average(net)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    training, held_out = tides(96, 1), tides(32, 2)
    sampler = DistributedSampler(training)
    loader = DataLoader(training, args.batch_size, sampler=sampler)
    held_loader = DataLoader(held_out, 16, sampler=DistributedSampler(held_out, shuffle=False))
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for moment, level in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(moment), level).backward()
            optimizer.step()
            average.follow(net)
        average.exchange(net)
        error = torch.zeros(2)
        with torch.no_grad():
            for moment, level in held_loader:
                error += torch.stack([(net(moment) - level).square().sum(), torch.tensor(float(len(level)))])
        average.exchange(net)
        dist.all_reduce(error)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: squared error {(error[0] / error[1]).item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
