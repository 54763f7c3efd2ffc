"""What is registered: adapters that are wrong on purpose, and adapters that are right in an unusual way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ddpcheck.adapter import Adapter, Facets
from ddpcheck.capabilities import Capabilities
from ddpcheck.environment import RankContext
from ddpcheck.launchers.base import Launcher
from ddpcheck.launchers.processes import Processes


@dataclass(frozen=True)
class Fault:
    """name: its id in the catalogue of faults, or a word of its own. source: threads where it was met, or "classic".
    caught_by: every check that must fail, none if the adapter is correct; `words` what the first of them must say.
    world_size: the smallest at which it shows. made: the class or function that is at fault.
    """

    name: str
    source: str
    caught_by: tuple[str, ...]
    words: str
    adapter: Adapter
    world_size: int
    made: Any

    @property
    def module(self) -> str:
        return str(self.made.__module__)

    @property
    def family(self) -> str:
        """What it is in: replicas.gradient, samplers.epochs, lifecycle.timing, ..."""
        return self.module.partition(".faulty.")[2]


REGISTERED: list[Fault] = []


def register(
    name: str,
    source: str,
    caught_by: tuple[str, ...],
    words: str,
    world_size: int,
    made: Any,
    connect: Callable[[RankContext], Facets],
    promises: Capabilities,
    launcher: Launcher | None = None,
    requires: tuple[str, ...] = (),
) -> Adapter:
    """Remember what is at fault, or unusual; returns its adapter, which its module gives a name."""
    title = f"{'faulty' if caught_by else 'unusual'} {name}"
    description = (made.__doc__ or name).partition("\n")[0]
    adapter = Adapter(title, connect, promises, launcher or Processes(), requires, description)
    REGISTERED.append(Fault(name, source, caught_by, words, adapter, world_size, made))
    return adapter
