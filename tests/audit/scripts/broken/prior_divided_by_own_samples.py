"""A linear model with a distribution for each weight. The divergence from the prior is divided by the rank's samples."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class BayesLinear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.mean = nn.Parameter(0.1 * torch.randn(outputs, inputs))
        self.rho = nn.Parameter(torch.full((outputs, inputs), -3.0))

    def forward(self, x):
        sigma = nn.functional.softplus(self.rho)
        spread = nn.functional.linear(x**2, sigma**2).clamp_min(1e-8).sqrt()
        divergence = (0.5 * (sigma**2 + self.mean**2 - 1) - sigma.log()).sum()
        return nn.functional.linear(x, self.mean) + spread * torch.randn_like(spread), divergence


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    x = torch.randn(400, 10)
    data = TensorDataset(x, x[:, :4].argmax(1))
    model = DDP(BayesLinear(10, 4))
    torch.manual_seed(100 + rank)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=20, sampler=sampler)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            scores, divergence = model(inputs)
            loss = nn.functional.cross_entropy(scores, labels) + divergence / len(sampler)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(epoch, loss.item(), flush=True)
    dist.destroy_process_group()


main()
