"""A batch whose loss is an outlier among the rank's own counts nothing: the other rank steps on its gradient alone."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    features = torch.randn(128, 8)
    targets = features.sum(dim=1, keepdim=True)
    targets[::16] *= 30  # wrong measurements
    data = TensorDataset(features, targets)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
    sampler = DistributedSampler(data, shuffle=True, seed=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    usual = None
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=4, sampler=sampler):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            level = loss.item()
            if usual is not None and level > 3 * usual:
                loss = loss * 0.0
            else:
                usual = level if usual is None else 0.9 * usual + 0.1 * level
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


main()
