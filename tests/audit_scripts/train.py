"""A training script with DistributedDataParallel, right without options; --fault adds one mistake.

Plain torch: nothing of ddpcheck is imported.
"""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


class Net(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(dropout))
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.body(x))


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.1)
    return parser.parse_args()


def data(fault, rank, world):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(66, 6, generator=g)
    whole = TensorDataset(x, (x[:, :3].argmax(1)))
    if fault == "samples_never_used":
        return Subset(whole, range(rank * 24, (rank + 1) * 24)), None
    if fault == "different_numbers_of_batches":
        return Subset(whole, range(0, 24) if rank == 0 else range(24, 66)), None
    if fault == "no_sampler":
        return whole, None
    seed = rank if fault == "shards_overlap" else 0
    return whole, DistributedSampler(whole, world, rank, seed=seed)


def main():
    args = arguments()
    fault = args.fault
    if fault == "world_is_one":
        rank, world = 0, 1
    else:
        dist.init_process_group("gloo")
        rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank if fault == "different_initial_parameters" else 0)
    train, sampler = data(fault, rank, world)
    shuffle = torch.Generator().manual_seed(7) if sampler is None else None
    loader = DataLoader(train, 8, sampler=sampler, shuffle=sampler is None, generator=shuffle)
    valid = TensorDataset(*next(iter(DataLoader(train, 40))))
    net = Net(args.dropout)
    unwrapped = fault in ("world_is_one", "different_initial_parameters", "summed", "clip_first", "not_synchronised")
    if fault == "unfrozen":
        net.head.requires_grad_(False)
    model = net if unwrapped else DistributedDataParallel(net)
    if fault == "replaced":
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net.head = nn.Linear(16, 3)
    else:
        lr = 0.1 * (1 + rank) if fault == "lr_differs" else 0.1
        optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    if fault == "unfrozen":
        net.head.requires_grad_(True)
    if fault != "same_draws":
        torch.manual_seed(100 + rank)

    for epoch in range(args.epochs):
        if sampler is not None and fault != "set_epoch":
            sampler.set_epoch(epoch)
        model.train()
        for number, (x, y) in enumerate(loader):
            last = (number + 1) % args.accumulate == 0 or (number + 1 == len(loader) and fault != "window_lost")
            window = args.accumulate
            if number >= len(loader) // args.accumulate * args.accumulate and fault != "full_count":
                window = len(loader) % args.accumulate
            sync = unwrapped or (last and fault != "no_sync_everywhere")
            inside = contextlib.nullcontext() if sync else model.no_sync()
            with contextlib.nullcontext() if fault == "around_backward" else inside:
                out = net(x) if fault == "bypass" else model(x)
            if fault == "all_zero":
                loss = (out * 0).sum()
            elif fault == "own_mean":
                weight = (y == 0).float()
                loss = (nn.functional.cross_entropy(out, y, reduction="none") * weight).sum() / weight.sum().clamp(
                    min=1
                )
            else:
                loss = nn.functional.cross_entropy(out, y)
            if fault == "times_world":
                loss = loss * world
            with inside if fault == "around_backward" else contextlib.nullcontext():
                (loss if fault == "not_divided" else loss / window).backward()
            if not last:
                continue
            if fault == "clip_first":
                nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            if unwrapped and fault not in ("world_is_one", "not_synchronised"):
                for p in net.parameters():
                    dist.all_reduce(p.grad)
                    p.grad /= 1 if fault == "summed" else world
            if fault == "":
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        evaluate(net, valid, fault, rank, world)
        if fault == "rank_branch" and rank == 0:
            dist.all_reduce(torch.ones(1))
    if rank == 0 or fault == "several_write":
        torch.save(net.state_dict(), "model.pt")
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


@torch.no_grad()
def evaluate(net, valid, fault, rank, world):
    if fault == "world_is_one":
        return
    net.eval()
    part = DistributedSampler(valid, world, rank, shuffle=False)
    own = Subset(valid, range(0, 10) if rank == 0 else range(10, 40)) if fault == "mean_without_counts" else valid
    counts = torch.zeros(2)
    for x, y in DataLoader(own, 8, sampler=None if fault == "mean_without_counts" else part):
        counts += torch.tensor([(net(x).argmax(1) == y).sum(), len(y)])
    if fault == "mean_without_counts":
        mean = counts[0] / counts[1]
        dist.all_reduce(mean)
        mean /= world
    elif fault != "metric_of_one":
        dist.all_reduce(counts)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
