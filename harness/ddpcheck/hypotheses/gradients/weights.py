"""Hypotheses about a gradient: wrongly counted auxiliary terms or sample weights."""

from __future__ import annotations

from ...seeded_values import Array
from ..arrays.evidence import WhatIf
from .contributions import Contributions


def terms_count_wrongly(made: Contributions, expected: Array, rank: int) -> WhatIf:
    if made.terms:
        yield from made.terms.gone_wrong(made.own, expected, rank)


def sample_weights_count_wrongly(made: Contributions, expected: Array, rank: int) -> WhatIf:
    if made.weighing:
        yield from made.weighing.gone_wrong(made.own, made.last)
