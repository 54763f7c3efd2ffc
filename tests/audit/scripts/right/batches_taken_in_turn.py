"""Every rank goes through one loader in one order, and trains on each batch whose turn it is."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 2


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(8)
    heights = torch.randn(192, 4)
    weights = heights @ torch.tensor([[1.0], [0.5], [-2.0], [0.0]])
    loader = DataLoader(TensorDataset(heights, weights), 8, shuffle=True, generator=torch.Generator().manual_seed(3))
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(EPOCHS):
        for turn, (inputs, targets) in enumerate(loader):
            if turn % world != rank:
                continue
            optimizer.zero_grad()
            loss = (model(inputs) - targets).square().mean()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"{epoch} {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
