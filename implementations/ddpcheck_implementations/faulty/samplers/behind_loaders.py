"""Samplers read by a loader that draws a seed for its workers in every epoch."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from ddpcheck.seeded_values import Array

from ..facet_seams import PlainSampler, sampler


class DrawsASeed(PlainSampler):
    """Draws a seed for workers. The order does not depend on it."""

    def __iter__(self) -> Iterator[int]:
        self.base_seed = random.getrandbits(63)
        return super().__iter__()


@sampler("loader-draws-unpromised", "check_samplers_leave_process_state_unchanged", cause="process-generator-changed")
class Unpromised(DrawsASeed):
    """The sampler draws from the process's random generator without declaring it."""


@sampler("order-from-the-loaders-seed", "check_sampler_order_depends_only_on_seed_and_epoch", behind_loader=True)
class OrderFromTheSeed(DrawsASeed):
    """The order comes from a random draw of the loader, which differs by rank and run."""

    def order(self) -> Array:
        if not self.shuffle:
            return super().order()
        return np.random.default_rng((self.seed, self.epoch, self.base_seed & 1)).permutation(self.length)


# ------------------------------------------------------------------------------------------------- correct, but unusual


@sampler("sampler-behind-a-loader", behind_loader=True)
class BehindALoader(DrawsASeed):
    """Correct if promised: beginning an epoch draws a seed from the process's generator."""
