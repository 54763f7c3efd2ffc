"""Jobs that read samplers with lengths, epochs and seeds at which chance does not matter.

A correct shuffle may by chance give an order that a check takes for a fault. So orders of SHUFFLED(W) = 40 W samples are
compared: two random ones are equal with probability 1/(40 W)! < 1e-47, the samples of one rank are the same set with 1/C(40
W, 40), below 1e-23 for W >= 2, and all ranks' lists turn once at most with less than (2^42/40!)^W < 1e-35. Thousands of
draws stay far below 1e-9.
"""

from __future__ import annotations

from ddpcheck.job import Job, Sample

PAST_16_BITS = 70_001
PAST_24_BITS = ((1 << 24), (1 << 24) + 1)  # equal in float32
LARGEST = ((1 << 32) - 1, (1 << 32) - 2)  # the largest that NumPy's older generators take, which an added epoch exceeds
SEED = 42
EPOCHS = (2, 0, 1, 3, 12, 102, 258, 1002, 2048, 2049, (1 << 16) + 2)
"""First forwards, then back; some equal to an earlier epoch in their lowest digits, or in their lowest eight, or
sixteen, bits; some next to one that float16 cannot distinguish. Larger epochs would take long if a generator advances
epoch by epoch.
"""
SEEDS = (SEED, SEED + 1, 0, 1, 7, 7 + (1 << 16), 7 + (1 << 31), *PAST_24_BITS, 123, 1234, 1337, 2147483647)
"""0, values often used in its place, and values equal in some bits, in float32, or modulo a generator's prime."""


def shuffled(world_size: int) -> int:
    """A length at which chance does not matter; all ranks get 40 samples."""
    return 40 * world_size


def reads(
    world_size: int,
    length: int | None = None,
    *,
    epochs: tuple[int | None, ...] = (0,),
    shuffle: bool = True,
    seeds: tuple[int, ...] = (SEED,),
    drop_last: bool = False,
) -> Job:
    """One sampler for each seed, read for these epochs."""
    length = shuffled(world_size) if length is None else length
    return Job(world_size, tuple(Sample(length, epochs, shuffle, seed, drop_last) for seed in seeds))
