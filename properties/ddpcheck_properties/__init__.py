"""What must hold: the checks of a data-parallel implementation, by family."""

from __future__ import annotations

from ddpcheck.checks import Check, checks_of

from . import accumulation, gradients, replica_sync, trajectories, unused

CHECKS: tuple[Check, ...] = checks_of(gradients, trajectories, accumulation, unused, replica_sync)

__all__ = ["CHECKS"]
