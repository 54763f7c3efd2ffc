"""An autoencoder and a critic, each with its optimizer; only the autoencoder's rate follows a plateau schedule."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CHECKED_EVERY = 3


class Trainer:
    def __init__(self, data):
        self.sampler = DistributedSampler(data, seed=2)
        self.loader = DataLoader(data, batch_size=8, sampler=self.sampler, drop_last=True)
        self.coder = DDP(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 6)))
        self.critic = DDP(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)))
        self.coder_optimizer = torch.optim.Adam(self.coder.parameters(), lr=0.02)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=0.01)
        self.plateau = ReduceLROnPlateau(self.coder_optimizer, factor=0.5, patience=0, threshold=0.05)

    def step_critic(self, x):
        self.critic_optimizer.zero_grad()
        with torch.no_grad():
            made = self.coder(x)
        scores = self.critic(torch.cat([x, made]))
        labels = torch.cat([torch.ones(len(x), 1), torch.zeros(len(x), 1)])
        nn.functional.binary_cross_entropy_with_logits(scores, labels).backward()
        self.critic_optimizer.step()

    def step_coder(self, x):
        self.coder_optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.coder(x), x)
        loss.backward()
        self.coder_optimizer.step()
        return loss.detach()

    def lower_rates(self, loss):
        self.plateau.step(loss)

    def fit(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            losses = []
            for (x,) in self.loader:
                self.step_critic(x)
                losses.append(self.step_coder(x))
                if len(losses) == CHECKED_EVERY:
                    self.lower_rates(torch.stack(losses).mean())
                    losses.clear()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    trainer = Trainer(TensorDataset(torch.randn(384, 6, generator=torch.Generator().manual_seed(1))))
    trainer.fit(epochs=2)
    if dist.get_rank() == 0:
        print(f"rate {trainer.coder_optimizer.param_groups[0]['lr']:.2e}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
