"""Linear regression that goes on from an earlier run; rank 0 has its checkpoint, and the wrapper sends the parameters."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

RATE, BETAS, EPSILON = 0.02, (0.9, 0.99), 1e-8


def earlier_run(x, y, steps):
    """The checkpoint after some steps of Adam on the whole data, in plain formulas."""
    w, mean, square = torch.zeros(1, x.shape[1]), torch.zeros(1, x.shape[1]), torch.zeros(1, x.shape[1])
    for step in range(1, steps + 1):
        gradient = 2 * (x @ w.T - y).T @ x / len(x)
        mean = BETAS[0] * mean + (1 - BETAS[0]) * gradient
        square = BETAS[1] * square + (1 - BETAS[1]) * gradient**2
        root = (square / (1 - BETAS[1] ** step)).sqrt()
        w = w - RATE * mean / (1 - BETAS[0] ** step) / (root + EPSILON)
    state = {"step": torch.tensor(float(steps)), "exp_avg": mean, "exp_avg_sq": square}
    return {"model": {"weight": w}, "state": {0: state}}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(5)
    x = torch.randn(256, 8, generator=g)
    y = x @ torch.randn(8, 1, generator=g) + 0.3 * torch.randn(256, 1, generator=g)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, seed=1)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = nn.Linear(8, 1, bias=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, betas=BETAS, eps=EPSILON)
    if rank == 0:
        checkpoint = earlier_run(x, y, steps=12)
        checkpoint["optimizer"] = {**optimizer.state_dict(), "state": checkpoint["state"]}
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
    wrapped = DDP(model)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(wrapped(xb), yb)
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
