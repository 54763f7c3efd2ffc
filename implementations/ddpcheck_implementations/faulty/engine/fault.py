"""A fault as a row of a table: in a circumstance, an effect replaces the right behaviour."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ddpcheck.contract.adapter import Adapter

from ..registry import SeenIn, invented
from .circumstances import Circumstance


class Effect(Protocol):
    """A wrong behaviour of one seam. implemented(): the seam's correct class, with this behaviour in one circumstance.
    register: the decorator that makes an adapter of such a class.
    """

    @property
    def register(self) -> Callable[..., Callable[[Any], Adapter]]: ...
    def implemented(self, where: Circumstance) -> type[Any]: ...


class Fault:
    """One row. sentence: describes the wrong code. promises: Capabilities other than the seam's. in_torch: id, effect and
    sources of the same fault in torch.
    """

    def __init__(
        self,
        name: str,
        sentence: str,
        *,
        where: Circumstance,
        effect: Effect,
        caught_by: tuple[str, ...] | str = (),
        cause: str = "",
        seen_in: SeenIn = invented,
        world_size: int = 2,
        in_torch: tuple[str, Effect, SeenIn] | None = None,
        **promises: Any,
    ) -> None:
        self.name, self.sentence, self.where, self.effect = name, sentence, where, effect
        self.caught_by = (caught_by,) if isinstance(caught_by, str) else caught_by
        self.about: dict[str, Any] = {"cause": cause, "seen_in": seen_in, "world_size": world_size, **promises}
        self.twins = [in_torch] if in_torch is not None else []

    def in_every_engine(self) -> Iterator[Fault]:
        """This row, and the same fault in torch if there is one: the same circumstance, checks and cause."""
        yield self
        for name, effect, seen_in in self.twins:
            about: dict[str, Any] = self.about | {"seen_in": seen_in}
            yield Fault(name, self.sentence, where=self.where, effect=effect, caught_by=self.caught_by, **about)

    @property
    def attribute(self) -> str:
        """The adapter's name in the module of the table."""
        return "".join(word.capitalize() for word in self.name.split("-"))

    def adapter(self, module: str) -> Adapter:
        """Make the adapter, and register it in this module."""
        made = self.effect.implemented(self.where)
        made.__name__ = made.__qualname__ = self.attribute
        made.__module__ = module
        made.__doc__ = self.sentence
        return self.effect.register(self.name, *self.caught_by, **self.about)(made)


def table(module: dict[str, Any], *faults: Fault) -> None:
    """Register the faults, and put their adapters into a module's globals, where ranks find them."""
    for fault in (each for row in faults for each in row.in_every_engine()):
        assert fault.attribute not in module, f"{module['__name__']} has a {fault.attribute} already"
        module[fault.attribute] = fault.adapter(module["__name__"])
