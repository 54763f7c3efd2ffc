"""Lightning's UnrepeatedDistributedSampler, which predict() puts in the place of a user's: no sample comes twice."""

from ddpcheck import TYPICAL
from ddpcheck.pytorch.adapter import torch_adapter


def sampler(length, *, shuffle, seed, drop_last):
    from lightning.pytorch.overrides.distributed import UnrepeatedDistributedSampler

    return UnrepeatedDistributedSampler(range(length), shuffle=shuffle, seed=seed, drop_last=drop_last)


adapter = torch_adapter(
    "lightning_unrepeated",
    sampler=sampler,
    capabilities=TYPICAL.but(remainder="uneven", drop_last=False, few_samples="refused"),
)
