"""The link between emulated hosts, parsed from the command line."""

from __future__ import annotations

from dataclasses import dataclass

from ..projection.quantities import parse_rate


@dataclass(frozen=True, slots=True)
class Fabric:
    """Hosts of `each` ranks, one link of `rate` bytes/s each; `text` names the rate in results."""

    text: str
    rate: float
    each: int = 1

    @classmethod
    def of(cls, text: str, each: int) -> Fabric:
        """From a text such as 1Gbit/s, 10GbE or 125MB/s. ValueError if it is not a rate."""
        return cls(text, parse_rate(text), each)

    @property
    def name(self) -> str:
        return f"{self.text}x{self.each}" if self.each > 1 else self.text

    def hosts(self, world_size: int) -> int:
        return -(-world_size // self.each)

    def refuses(self, world_size: int) -> str | None:
        """The reason why this number of ranks cannot be distributed over hosts."""
        if world_size > self.each and world_size % self.each:
            return f"{world_size} ranks do not fill hosts of {self.each}"
        return None
