"""The learning rate falls with the number of samples seen."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

TOTAL_SAMPLES = 6 * 480


def lr_at(seen, peak=0.1, warm=320):
    if seen < warm:
        return peak * (seen + 1) / warm
    return peak * max(0.0, (TOTAL_SAMPLES - seen) / (TOTAL_SAMPLES - warm))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(480, 8)
    ds = TensorDataset(x, (x[:, 0] > x[:, 1]).long())
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, 10, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)))
    opt = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    seen = 0
    for epoch in range(6):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            for group in opt.param_groups:
                group["lr"] = lr_at(seen)
            loss = nn.functional.cross_entropy(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen += xb.size(0)
        if dist.get_rank() == 0:
            print(epoch, loss.item(), opt.param_groups[0]["lr"])
    dist.destroy_process_group()


main()
