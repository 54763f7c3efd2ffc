"""What is registered: adapters that are wrong on purpose, and adapters that are right in an unusual way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ddpcheck.adapter import Adapter


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
        """The module that it is in: gradient, samplers, timing, ..."""
        return self.module.rpartition(".")[2]


REGISTERED: list[Fault] = []


def register(fault: Fault) -> Adapter:
    """Remember a fault; its adapter, which its module gives a name."""
    REGISTERED.append(fault)
    return fault.adapter
