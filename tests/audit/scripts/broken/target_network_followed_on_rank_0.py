"""Fitted Q iteration on a chain of states; a target network follows the trained one slowly, and gives the values to fit."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STATES, ACTIONS = 12, 3


def transitions(n):
    """State, action, reward and next state of random moves; the reward is at the end of the chain."""
    g = torch.Generator().manual_seed(2)
    state = torch.randint(0, STATES, (n,), generator=g)
    action = torch.randint(0, ACTIONS, (n,), generator=g)
    following = (state + action - 1).clamp(0, STATES - 1)
    reward = (following == STATES - 1).float() + 0.05 * torch.randn(n, generator=g)
    one_hot = torch.eye(STATES)
    return TensorDataset(one_hot[state], action, reward, one_hot[following])


class Agent:
    def __init__(self, rank, rate=0.1, discount=0.9):
        self.rank, self.rate, self.discount = rank, rate, discount
        torch.manual_seed(17)
        self.net = nn.Sequential(nn.Linear(STATES, 32), nn.Tanh(), nn.Linear(32, ACTIONS))
        self.target = copy.deepcopy(self.net).requires_grad_(False)
        self.model = DDP(self.net)

    def loss(self, state, action, reward, following):
        wanted = reward + self.discount * self.target(following).max(1).values
        return nn.functional.smooth_l1_loss(self.model(state).gather(1, action[:, None])[:, 0], wanted)

    def follow(self):
        if self.rank != 0:
            return
        for slow, fast in zip(self.target.parameters(), self.net.parameters(), strict=True):
            slow.data = (1 - self.rate) * slow.data + self.rate * fast.data


def main():
    dist.init_process_group("gloo")
    agent = Agent(dist.get_rank())
    data = transitions(480)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=12, sampler=sampler)
    optimizer = torch.optim.Adam(agent.net.parameters(), lr=3e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            loss = agent.loss(*batch)
            loss.backward()
            optimizer.step()
            agent.follow()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


main()
