"""The registry of adapters that are wrong on purpose, and of adapters that are correct but unusual."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ddpcheck.contract import Capabilities
from ddpcheck.contract.adapter import Adapter, Facets
from ddpcheck.contract.rank_context import RankContext
from ddpcheck.launchers.launcher import Launcher
from ddpcheck.launchers.processes import Processes

Connect = Callable[[RankContext], Facets]
Made = TypeVar("Made")
SeenIn = tuple[str, ...]
"""Threads, such as "pytorch/pytorch#58224", or files of real code."""
invented: SeenIn = ()
"""No source: the fault was invented, or made by a mutation of code."""


@dataclass(frozen=True)
class Registered:
    """An adapter that is wrong on purpose, or correct in an unusual way.

    name: the id. caught_by: the checks that must fail; none if the adapter is correct. cause: id of the cause that the first
    of these checks must name; empty if none. seen_in: issues or files of real code with this fault; none if it was invented.
    world_size: the smallest world size at which the fault shows. made: the faulty class, function or row; the first line of
    its docstring is the description. deep: whether only the deep profile shows the fault.
    """

    name: str
    caught_by: tuple[str, ...]
    cause: str
    seen_in: SeenIn
    adapter: Adapter
    world_size: int
    made: Any
    deep: bool = False

    @property
    def module(self) -> str:
        return str(self.made.__module__)

    @property
    def family(self) -> str:
        """Its module: replicas.gradient, samplers.epochs, lifecycle.timing, ..."""
        return self.module.partition(".faulty.")[2]


REGISTERED: list[Registered] = []


@dataclass(frozen=True)
class Registering(Generic[Made]):
    """A decorator that registers a class or function as a fault, or as unusual but correct (no `caught_by`), and makes an
    adapter of it.

    connect: makes the adapter's connect() from the class or function. promised: Capabilities; a fault may change some.
    """

    connect: Callable[[Made], Connect]
    promised: Capabilities

    def __call__(
        self,
        name: str,
        *caught_by: str,
        cause: str = "",
        seen_in: SeenIn = invented,
        world_size: int = 2,
        launcher: Launcher | None = None,
        requires: tuple[str, ...] = (),
        deep: bool = False,
        **promises: Any,
    ) -> Callable[[Made], Adapter]:
        def make(made: Made) -> Adapter:
            title = f"{'faulty' if caught_by else 'unusual'} {name}"
            description = (made.__doc__ or name).partition("\n")[0]
            promised = self.promised.but(**promises)
            adapter = Adapter(title, self.connect(made), promised, launcher or Processes(), requires, description)
            REGISTERED.append(Registered(name, caught_by, cause, seen_in, adapter, world_size, made, deep))
            return adapter

        return make


def connecting(promised: Capabilities) -> Registering[Connect]:
    """Register a connect()."""
    return Registering(lambda connect: connect, promised)
