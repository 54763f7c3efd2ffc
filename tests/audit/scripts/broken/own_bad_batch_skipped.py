# regression with a guard against bad batches
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Sensors(Dataset):
    def __init__(self, n=256):
        g = torch.Generator().manual_seed(12)
        self.x = torch.randn(n, 9, generator=g)
        self.y = self.x.sum(1, keepdim=True).tanh()
        self.x[77, 3] = float("nan")  # one broken recording

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    data = Sensors()
    sampler = DistributedSampler(data, seed=1)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(9, 32), nn.SiLU(), nn.Linear(32, 1)))
    opt = torch.optim.AdamW(model.parameters(), 1e-3)
    skipped = 0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        running = 0.0
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.smooth_l1_loss(model(x), y)
            if not torch.isfinite(loss):
                skipped += 1
                print(f"[rank {rank}] skipping batch {step} of epoch {epoch}")
                continue
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            running += loss.item()
        if rank == 0:
            print(epoch, running / len(loader), skipped)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
