"""Regression whose learning rate the script lowers itself, where the mean loss of the last batches no longer falls."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WINDOW = 4


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    g = torch.Generator().manual_seed(8)
    x = torch.randn(320, 5, generator=g)
    y = x[:, :1] * x[:, 1:2] + 0.5 * torch.randn(320, 1, generator=g)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, seed=6)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.Linear(24, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best, losses = float("inf"), []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = nn.functional.mse_loss(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            if len(losses) < WINDOW:
                continue
            recent = torch.stack(losses).mean()
            losses.clear()
            if recent > 0.95 * best:
                for group in optimizer.param_groups:
                    group["lr"] *= 0.7
            best = min(best, recent.item())
    if dist.get_rank() == 0:
        print(f"best {best:.4f} rate {optimizer.param_groups[0]['lr']:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
