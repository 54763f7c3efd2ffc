"""Settings of the NumPy references' replicas, which are the options of make_replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

Overlap = Literal["on", "off", "auto"]


@dataclass(frozen=True)
class EngineSettings:
    """Settings of a replica.

    bucket_cap_mb: MiB of gradients in one message; a larger parameter has its own. Messages of 4 MiB cost less per byte than
    those of 25 MiB on all transports here, since they stay in the cache, and allow more overlap.
    overlap: reduce buckets on a thread while backward computes: "on", "off", or "auto", which tries both in the first steps.
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

    def with_options(self, options: Mapping[str, Any]) -> EngineSettings:
        """Return these settings with a user's options. ValueError if an option is unknown or has an invalid value."""
        known = [field.name for field in fields(self)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise ValueError(f"unknown option {', '.join(unknown)}: this implementation has {' and '.join(known)}")
        return replace(self, **options)


DEFAULTS = EngineSettings()
