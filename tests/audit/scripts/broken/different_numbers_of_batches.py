"""GRU on signals; the samples are dealt to the ranks like cards."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset


def make_signals(n, length, seed):
    """Noisy sine waves of three frequencies."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (n,), generator=g)
    phase = 6.28 * torch.rand(n, 1, generator=g)
    x = torch.sin(phase + torch.arange(length).float() * (0.3 + 0.4 * labels.unsqueeze(1)))
    return TensorDataset((x + 0.2 * torch.randn(n, length, generator=g)).unsqueeze(-1), labels)


class SignalClassifier(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 3)

    def forward(self, x):
        states, _ = self.rnn(x)
        return self.out(states.mean(1))


def run_epoch(model, loader, optimizer):
    totals = torch.zeros(3)
    for x, y in loader:
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        totals += torch.tensor([loss.item() * len(y), (logits.argmax(1) == y).sum(), len(y)])
    dist.all_reduce(totals)
    return totals


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(0)
    data = make_signals(145, 16, seed=0)
    mine = Subset(data, range(rank, len(data), world))
    g = torch.Generator().manual_seed(rank)
    loader = DataLoader(mine, batch_size=args.batch_size, shuffle=True, generator=g)
    model = DDP(SignalClassifier(16))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        loss, right, n = run_epoch(model, loader, optimizer).tolist()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss / n:.4f}, accuracy {right / n:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
