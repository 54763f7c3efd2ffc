"""Defaults of `ddpcheck bench`."""

from __future__ import annotations

from dataclasses import dataclass

from .iteration_count import Effort
from .step_cases import EMULATED

_COMPUTED = "small,medium,large,resnet18"


@dataclass(frozen=True, slots=True)
class Scope:
    """The options of the command line, as texts."""

    effort: Effort
    world_sizes: tuple[int, ...]
    collectives: str
    sizes: str
    steps: str
    buckets: str
    minutes: float = 14.0

    @classmethod
    def of(cls, *, quick: bool, hosts: bool) -> Scope:
        """hosts: with emulated accelerators on emulated hosts. Launches differ little there, because ranks do not share
        cores.
        """
        if hosts:
            return _QUICK_HOSTS if quick else _HOSTS
        return _QUICK if quick else _FULL


_FULL = Scope(Effort(), (1, 2, 4, 8), "all", "4B..256MiB", _COMPUTED, "0.5,1,5,25")
_QUICK = Scope(
    Effort(launches=3, budget=0.03, most=60, large_launches=1, step_budget=0.15),
    (1, 2), "all", "4B,1KiB,64KiB,1MiB,16MiB", "small,medium", "none", 3.0,
)  # fmt: skip
_HOSTS = Scope(Effort(launches=2), (1, 2, 4, 8), "all_reduce", "64KiB,1MiB,25MiB", EMULATED, "1,25")
_QUICK_HOSTS = Scope(Effort(launches=1), (1, 2, 4), "all_reduce", "25MiB", EMULATED, "none", 3.0)
