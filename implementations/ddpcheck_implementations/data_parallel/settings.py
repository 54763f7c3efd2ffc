"""The options of make_replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

Overlap = Literal["on", "off", "auto"]


@dataclass(frozen=True)
class EngineSettings:
    """bucket_cap_mb: MiB of gradients in one message; a larger parameter has one of its own. Messages of 4 MiB cost less for
    each byte than those of 25 MiB on all transports here, as they stay in the cache, and leave more to overlap.

    overlap: whether buckets are reduced, on a thread, while backward still computes: "on", "off", or "auto", which tries both
    over the first steps.
    """

    bucket_cap_mb: float = 4.0
    overlap: Overlap = "auto"

    def __post_init__(self) -> None:
        if isinstance(self.bucket_cap_mb, bool) or not isinstance(self.bucket_cap_mb, (int, float)):
            raise ValueError(f"bucket_cap_mb must be a number, got {self.bucket_cap_mb!r}")
        if not self.bucket_cap_mb > 0:
            raise ValueError(f"bucket_cap_mb must be positive, got {self.bucket_cap_mb}")
        if self.overlap not in ("on", "off", "auto"):
            raise ValueError(f"overlap must be on, off or auto, got {self.overlap!r}")

    @property
    def bucket_bytes(self) -> int:
        return int(self.bucket_cap_mb * (1 << 20))

    def changed(self, options: Mapping[str, Any]) -> EngineSettings:
        """With a user's options. ValueError if one is unknown, or cannot be."""
        known = [field.name for field in fields(self)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise ValueError(f"unknown option {', '.join(unknown)}: this implementation has {' and '.join(known)}")
        return EngineSettings(**{name: options.get(name, getattr(self, name)) for name in known})


DEFAULTS = EngineSettings()
