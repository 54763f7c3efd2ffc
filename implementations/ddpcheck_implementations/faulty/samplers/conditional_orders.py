"""Samplers that ignore seed or epoch for some lengths or epochs, or with drop_last."""

from __future__ import annotations

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.fault import Fault, table
from ..engine.samplers import (
    drops_last,
    from_epoch,
    has_remainder,
    longer,
    natural_order,
    odd_length,
    ordering,
    seeded,
    shuffled,
    shuffles,
)
from ..facet_seams import PlainSampler

ANY = "check_shuffling_uses_seed_and_epoch_at_every_length"


@ordering
def by_another_generator(sampler: PlainSampler, order: Array) -> Array:
    """Seed and epoch decide the order here too."""
    generator = np.random.Generator(np.random.MT19937(sampler.seed * 65537 + sampler.epoch))
    return generator.permutation(sampler.length)


# fmt: off
table(
    globals(),
    Fault("drop-last-is-not-shuffled", "With drop_last and a remainder, samples are not shuffled.",
          where=drops_last & has_remainder, effect=natural_order,
          caught_by=ANY, cause="not-shuffled-at-length"),
    Fault("seed-without-remainder", "If samples do not divide evenly by ranks, the seed is ignored.",
          where=has_remainder, effect=seeded(lambda own: (0, own.epoch)),
          caught_by=ANY, cause="seed-or-epoch-ignored-at-length"),
    Fault("epochs-of-even-lengths", "With an odd number of samples, two consecutive epochs have the same order.",
          where=odd_length, effect=seeded(lambda own: (own.seed, own.epoch // 2)),
          caught_by=ANY, cause="seed-or-epoch-ignored-at-length"),
    Fault("seed-of-the-first-epochs", "From epoch 3 on, the seed is ignored.",
          where=from_epoch(3), effect=seeded(lambda own: (0, own.epoch)),
          caught_by=ANY, cause="seed-or-epoch-ignored-at-length"),
    Fault("too-large-to-be-shuffled", "More than 65,536 samples are not shuffled.",
          where=longer(1 << 16), effect=natural_order,
          caught_by=ANY, cause="not-shuffled-at-length"),
    Fault("drop-last-is-always-shuffled", "With drop_last, samples are shuffled even with shuffle=False.",
          where=drops_last, effect=shuffled,
          caught_by="check_order_without_shuffle_is_sequential", cause="shuffled-unasked"),
    Fault("other-lengths-otherwise", "Correct: an odd number of samples is shuffled with another generator.",
          where=shuffles & odd_length, effect=by_another_generator),  # correct, but unusual
)
# fmt: on
