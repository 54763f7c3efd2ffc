"""What users set, and nobody looks at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import PlainReplica, fault


@fault(
    "unknown-option-ignored",
    "classic",
    "check_an_unknown_option_is_an_error",
    words="options that are not known are ignored",
)
class UnknownOptionIgnored(PlainReplica):
    """It takes the options that it knows, and drops the rest without a word."""

    @staticmethod
    def look_at(options: Mapping[str, Any]) -> None:
        options.get("bucket_cap_mb")
