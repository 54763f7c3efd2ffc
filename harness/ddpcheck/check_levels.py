"""Levels of checking. Each check, and each model feature, declares the lowest level at which it runs."""

from __future__ import annotations

from enum import IntEnum

from .contract import Capabilities
from .contract.allowed_names import ALL_MODEL_FEATURES


class Level(IntEnum):
    """A level; each includes all levels before it."""

    BASIC = 0
    STANDARD = 1
    FULL = 2

    def __str__(self) -> str:
        return self.name.lower()

    @property
    def sentence(self) -> str:
        """The purpose of the level, in one sentence."""
        return _SENTENCES[self]


_SENTENCES = {
    Level.BASIC: "Plain models and the most common laws: for the first run of a new wrapper.",
    Level.STANDARD: "All checks. Once a cause is known, the checks that it fails take one Job each.",
    Level.FULL: "All checks with all their Jobs, even after a cause is known.",
}
LEVELS = {str(level): level for level in Level}
"""The levels by name."""

_PLAIN = frozenset({"scale", "buffer", "batch_norm", "embedding", "delay"})
FEATURE_LEVELS = {name: Level.BASIC if name in _PLAIN else Level.STANDARD for name in ALL_MODEL_FEATURES}
"""The lowest level whose models have a feature."""


def promises_at_level(capabilities: Capabilities, level: Level) -> Capabilities:
    """The promises that are judged at this level, without model features of higher levels."""
    if not capabilities.replica.model_features:
        return capabilities
    return capabilities.but(model_features=capabilities.replica.model_features - features_beyond(capabilities, level))


def features_beyond(capabilities: Capabilities, level: Level) -> frozenset[str]:
    """The promised features of models that a level leaves out."""
    return frozenset(name for name in capabilities.replica.model_features if FEATURE_LEVELS.get(name, level) > level)
