"""A typical training script, which `ddpcheck tour` audits: DDP on the CPU, a sampler, a few steps."""

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(96, 4)
    data = TensorDataset(x, x.sin().sum(1, keepdim=True))
    net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data)
    for inputs, wanted in DataLoader(data, batch_size=6, sampler=sampler):
        optimizer.zero_grad()
        loss = mse_loss(model(inputs), wanted)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own has no types
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
