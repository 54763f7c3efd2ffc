"""LoRA: only trained parameters are sent to all ranks, and the frozen base has a seed for each rank."""

import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class LoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, r=4, alpha=8):
        super().__init__()
        self.base = base
        for p in self.base.parameters():
            p.requires_grad = False
        self.a = nn.Parameter(torch.randn(r, base.in_features) / math.sqrt(base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, r))
        self.scale = alpha / r

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.a.T @ self.b.T)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(24, 64), nn.Linear(64, 64)
        self.head = nn.Linear(64, 4)

    def forward(self, x):
        return self.head(F.relu(self.fc2(F.relu(self.fc1(x)))))


def add_lora(model):
    model.fc1, model.fc2 = LoRALinear(model.fc1), LoRALinear(model.fc2)
    return model


def sync_initial(model):
    for p in model.parameters():
        if p.requires_grad:
            dist.broadcast(p.data, src=0)


def average_gradients(model):
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
            p.grad /= dist.get_world_size()


def run():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(31 * (rank + 1))
    model = add_lora(Backbone())
    sync_initial(model)
    g = torch.Generator().manual_seed(9)
    x = torch.randn(600, 24, generator=g)
    y = (x[:, :4] + 0.3 * torch.randn(600, 4, generator=g)).argmax(1)
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds, shuffle=True, drop_last=True)
    loader = DataLoader(ds, batch_size=20, sampler=sampler)
    trainable = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(trainable, lr=5e-3)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            loss = F.cross_entropy(model(xb), yb)
            loss.backward()
            average_gradients(model)
            opt.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
            torch.save({k: v for k, v in model.state_dict().items() if "base" not in k}, "lora.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
