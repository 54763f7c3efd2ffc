"""MMEngine's DefaultSampler, which pads, and which with round_up=False gives each sample once."""

from functools import partial

from ddpcheck import TYPICAL
from ddpcheck.pytorch.adapter import torch_adapter


def sampler(round_up, length, *, shuffle, seed, drop_last):
    from mmengine.dataset import DefaultSampler

    return DefaultSampler(range(length), shuffle=shuffle, seed=seed, round_up=round_up)


adapter = torch_adapter(
    "mmengine", sampler=partial(sampler, True), capabilities=TYPICAL.but(drop_last=False, few_samples="refused")
)
unpadded = torch_adapter(
    "mmengine_unpadded",
    sampler=partial(sampler, False),
    capabilities=TYPICAL.but(drop_last=False, remainder="uneven"),
)
