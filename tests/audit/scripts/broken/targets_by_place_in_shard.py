"""Distillation. A teacher's logits for the whole data set are looked up by the place in the rank's part."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


def load_corpus():
    g = torch.Generator().manual_seed(3)
    x = torch.randn(200, 12, generator=g)
    w = torch.randn(12, 5, generator=g)
    y = (x @ w).argmax(1)
    teacher_logits = 2 * (x @ w) + 0.1 * torch.randn(200, 5, generator=g)
    return x, y, teacher_logits


class DistillationSet(Dataset):
    def __init__(self, rank, world):
        self.x, self.y, self.teacher = load_corpus()
        self.ids = list(range(rank, len(self.x), world))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        sample = self.ids[i]
        return {"x": self.x[sample], "y": self.y[sample], "teacher": self.teacher[i]}


def distill_loss(logits, batch, temperature=2.0, alpha=0.5):
    hard = F.cross_entropy(logits, batch["y"])
    soft = F.kl_div(
        F.log_softmax(logits / temperature, dim=1),
        F.softmax(batch["teacher"] / temperature, dim=1),
        reduction="batchmean",
    )
    return alpha * hard + (1 - alpha) * temperature**2 * soft


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = DistillationSet(rank, world)
    g = torch.Generator()
    torch.manual_seed(8)
    student = DDP(nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 5)))
    opt = torch.optim.Adam(student.parameters(), lr=5e-3)
    for epoch in range(5):
        g.manual_seed(epoch)
        total = torch.zeros(())
        loader = DataLoader(data, batch_size=10, shuffle=True, generator=g)
        for batch in loader:
            opt.zero_grad()
            loss = distill_loss(student(batch["x"]), batch)
            loss.backward()
            opt.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}  {total.item() / len(loader) / world:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
