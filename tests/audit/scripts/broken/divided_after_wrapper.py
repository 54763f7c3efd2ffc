"""Regression with a wrapper; gradients are divided by the world size before they are clipped."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def finish_gradients(model, max_norm):
    for p in model.parameters():
        if p.grad is not None:
            p.grad.div_(dist.get_world_size())
    return nn.utils.clip_grad_norm_(model.parameters(), max_norm)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(384, 7)
    data = TensorDataset(x, (x[:, :1] - x[:, 1:2]).tanh())
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(7, 20), nn.SiLU(), nn.Linear(20, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(xb), yb)
            loss.backward()
            norm = finish_gradients(model, 5.0)
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss.item():.4f}, norm {norm.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
