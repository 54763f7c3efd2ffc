"""PPO on a toy bandit-like environment; updates stop early when the KL gets too large."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributions import Categorical
from torch.nn.parallel import DistributedDataParallel


class ActorCritic(nn.Module):
    def __init__(self, obs=6, act=4):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, 32), nn.Tanh())
        self.pi = nn.Linear(32, act)
        self.v = nn.Linear(32, 1)

    def forward(self, o):
        h = self.body(o)
        return self.pi(h), self.v(h).squeeze(-1)


class Env:
    """Reward 1 when the action is the index of the largest of the first four observations."""

    def __init__(self, n):
        self.n = n

    def reset(self):
        self.obs = torch.randn(self.n, 6)
        return self.obs

    def step(self, a):
        r = (a == self.obs[:, :4].argmax(1)).float()
        self.obs = torch.randn(self.n, 6)
        return self.obs, r


def global_norm(adv):
    s = torch.stack([adv.sum(), adv.pow(2).sum(), torch.tensor(float(adv.numel()))])
    dist.all_reduce(s)
    mean = s[0] / s[2]
    return (adv - mean) / (s[1] / s[2] - mean**2).clamp_min(1e-8).sqrt()


def main(iters=10, horizon=8, n_env=8, epochs=4, target_kl=0.004, clip=0.2):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2024 + rank)
    ac = DistributedDataParallel(ActorCritic())
    opt = torch.optim.Adam(ac.parameters(), lr=6e-3)
    env = Env(n_env)
    obs = env.reset()
    for it in range(iters):
        observed, actions, before, rewards, values = [], [], [], [], []
        with torch.no_grad():
            for _ in range(horizon):
                logits, v = ac.module(obs)
                d = Categorical(logits=logits)
                a = d.sample()
                observed.append(obs)
                actions.append(a)
                before.append(d.log_prob(a))
                values.append(v)
                obs, r = env.step(a)
                rewards.append(r)
        observed, actions, before, rewards, values = (
            torch.cat(t) for t in (observed, actions, before, rewards, values)
        )
        adv = global_norm(rewards - values)
        for _ in range(epochs):
            logits, v = ac(observed)
            d = Categorical(logits=logits)
            logp = d.log_prob(actions)
            ratio = (logp - before).exp()
            kl = ((ratio - 1) - (logp - before)).mean()
            if kl.item() > 1.5 * target_kl:
                break
            pg = -torch.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv).mean()
            loss = pg + 0.5 * (v - rewards).pow(2).mean() - 0.01 * d.entropy().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        mean_r = rewards.mean()
        dist.all_reduce(mean_r)
        if rank == 0:
            print(f"iter {it} reward {mean_r / dist.get_world_size():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
