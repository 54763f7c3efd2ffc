"""Sequence classification with a GRU; gradients are clipped and averaged by hand."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_signals(n, length, seed):
    """Noisy sine waves of three frequencies."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (n,), generator=g)
    phase = 6.28 * torch.rand(n, 1, generator=g)
    time = torch.arange(length).float()
    x = torch.sin(phase + time * (0.3 + 0.4 * labels.unsqueeze(1)))
    x = x * (0.5 + 2 * torch.rand(n, 1, generator=g)) + 0.2 * torch.randn(n, length, generator=g)
    return TensorDataset(x.unsqueeze(-1), labels)


class SignalClassifier(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 3)

    def forward(self, x):
        states, _ = self.rnn(x)
        return self.out(states[:, -1])


def all_reduce_mean(parameters, world_size):
    handles = [dist.all_reduce(p.grad, async_op=True) for p in parameters]
    for p, handle in zip(parameters, handles, strict=True):
        handle.wait()
        p.grad.div_(world_size)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=24)
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--clip", type=float, default=0.1)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(12)
    model = SignalClassifier(args.hidden)
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=args.lr, momentum=0.9)

    data = make_signals(240, 20, seed=8)
    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        hits = torch.zeros(2)
        for x, y in loader:
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            optimizer.zero_grad(set_to_none=False)
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, args.clip)
            all_reduce_mean(parameters, world_size)
            optimizer.step()
            hits += torch.tensor([(logits.argmax(1) == y).sum(), len(y)])
        dist.all_reduce(hits)
        if rank == 0:
            print(f"epoch {epoch}: accuracy {(hits[0] / hits[1]).item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
