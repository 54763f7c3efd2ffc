"""Prediction of the next value of parallel streams with a GRU whose state goes on; rank 0's state is sent to all."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Streams(Dataset):
    """Item i is window i of this rank's rows of a walk."""

    def __init__(self, rows, window, rank, world_size):
        g = torch.Generator().manual_seed(17)
        walk = torch.randn(rows * world_size, 241, generator=g).cumsum(1) / 8
        self.rows = walk[rank * rows : (rank + 1) * rows].unsqueeze(-1)
        self.window = window

    def __len__(self):
        return (self.rows.shape[1] - 1) // self.window

    def __getitem__(self, i):
        part = self.rows[:, i * self.window : (i + 1) * self.window + 1]
        return part[:, :-1], part[:, 1:]


class Forecaster(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rnn = nn.GRU(1, width, batch_first=True)
        self.out = nn.Linear(width, 1)

    def forward(self, x, state):
        hidden, state = self.rnn(x, state)
        return self.out(hidden), state


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(6)
    model = DDP(Forecaster(16))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = DataLoader(Streams(6, 12, rank, world_size), batch_size=None)
    for _ in range(2):
        state = None
        for x, y in loader:
            if state is not None:
                dist.broadcast(state, src=0)
            predicted, state = model(x, state)
            loss = nn.functional.mse_loss(predicted, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state = state.detach()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
