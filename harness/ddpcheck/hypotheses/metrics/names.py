"""Hypotheses about named metrics that are mixed up, missing, or under other names."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...causes import Cause
from ...causes import metrics as causes
from ...job import Aggregate
from ...oracle.means import mean_of

_BEGIN = 8
"""Letters by which names that are cut short are told apart."""


@dataclass(frozen=True)
class OtherNames:
    """Named metrics of one rank; some are wrong, missing or surplus.

    wanted: the right metrics, by name; wrong: those that this rank has with another value or not at all. got: the rank's
    result. own: its argument. earlier: the calls before.
    """

    made: Aggregate
    wanted: Mapping[str, float]
    wrong: Mapping[str, float]
    got: Mapping[str, float]
    own: Mapping[str, float]
    earlier: Sequence[Aggregate]
    rank: int

    @property
    def missing(self) -> list[str]:
        return [name for name in self.wanted if name not in self.got]

    @property
    def some(self) -> tuple[str, ...]:
        """The names of the first three wrong metrics."""
        return tuple([*self.wrong][:3])


def metrics_by_position(of: OtherNames) -> Cause | None:
    by_place = of.made.turned and all(of.got.get(name) == _by_place(of.made, name, of.rank) for name in of.wanted)
    return causes.METRICS_BY_POSITION() if by_place else None


def earlier_names_returned(of: OtherNames) -> Cause | None:
    return None if of.wrong else causes.EARLIER_NAMES_RETURNED()


def names_rewritten(of: OtherNames) -> Cause | None:
    there = of.got.keys()
    rewritten = any(_otherwise(name) <= there or _rewritten(name) & there for name in of.missing)
    return causes.NAMES_REWRITTEN() if rewritten else None


def name_prefix_cut(of: OtherNames) -> Cause | None:
    cut = any(_shortened(name, of.got, of.wanted[name]) for name in of.missing)
    return causes.NAME_PREFIX_CUT() if cut else None


def names_of_earlier_call(of: OtherNames) -> Cause | None:
    there = of.got.keys()
    earlier = any(there == set(each.names) for each in of.earlier) and not there & of.wanted.keys()
    return causes.NAMES_OF_EARLIER_CALL() if earlier else None


def names_in_other_order(of: OtherNames) -> Cause | None:
    same = sorted(of.got.values()) == sorted(of.wanted.values())
    return causes.NAMES_UNPACKED_IN_OTHER_ORDER() if same else None


def names_missing(of: OtherNames) -> Cause | None:
    return causes.NAMES_MISSING() if of.missing else None


def named_metric_not_aggregated(of: OtherNames) -> Cause | None:
    own = all(of.got[name] == of.own[name] for name in of.wrong)
    return causes.NAMED_METRIC_NOT_AGGREGATED(names=of.some) if own else None


def rule_by_name(of: OtherNames) -> Cause | None:
    ruled = all(of.got[name] in _by_another_rule(of.made, name) for name in of.wrong)
    return causes.RULE_BY_NAME(names=of.some) if ruled else None


def capped_by_name(of: OtherNames) -> Cause | None:
    got = {of.got[name] for name in of.wrong}
    if len(got) != 1:
        return None
    (limit,) = got
    return causes.CAPPED_BY_NAME(names=of.some, limit=limit) if _beyond(limit, of.wrong) else None


def names_cut_short(of: OtherNames) -> Cause | None:
    def confused(name: str) -> bool:
        return any(of.got[name] == of.wanted[other] and other[:_BEGIN] == name[:_BEGIN] for other in of.wanted)

    return causes.NAMES_CUT_SHORT() if all(map(confused, of.wrong)) else None


def names_confused(of: OtherNames) -> Cause | None:
    confused = all(of.got[name] in of.wanted.values() for name in of.wrong)
    return causes.NAMES_CONFUSED() if confused else None


def equal_metrics_reduced_together(of: OtherNames) -> Cause | None:
    together = len(of.wanted) > 1 and 0.0 in of.made.values and not of.made.turned
    return causes.EQUAL_METRICS_REDUCED_TOGETHER() if together else None


def metrics_mixed_up(of: OtherNames) -> Cause:
    return causes.METRICS_MIXED_UP()


def _beyond(bound: float, wanted: Mapping[str, float]) -> bool:
    """Whether all values lie beyond 0, 1 or 100, the ends of the range of a share, on the same side."""
    return bound in (0.0, 1.0, 100.0) and (min(wanted.values()) > bound or max(wanted.values()) < bound)


def _by_place(made: Aggregate, name: str, rank: int) -> float:
    """The mean over the ranks of the metric at the position that this name has on this rank."""
    place = list(made.given(rank)).index(name)
    values = tuple(list(made.given(other).values())[place] for other in range(len(made.values)))
    return mean_of([replace(made, values=values)])


def _by_another_rule(made: Aggregate, name: str) -> list[float]:
    """The sum, maximum, minimum and root mean square over the ranks."""
    values = [made.given(rank)[name] for rank in range(len(made.values))]
    squares = replace(made, values=tuple(value * value for value in values))
    return [sum(values), max(values), min(values), math.sqrt(mean_of([squares]))]


def _otherwise(name: str) -> set[str]:
    """The parts of a name with separators; otherwise the name in lower case."""
    parts = {part for part in re.split("[,=;/\n\t]", name) if part != name}
    return parts or {name.lower()}


def _shortened(name: str, got: Mapping[str, float], wanted: float) -> bool:
    """Whether the part after the first underscore of the name has the name's value."""
    _, _, rest = name.partition("_")
    return bool(rest) and got.get(rest) == wanted


def _rewritten(name: str) -> set[str]:
    """The name without blanks at its ends, and in other Unicode normal forms, where these differ from it."""
    return {name.strip(), unicodedata.normalize("NFKC", name), unicodedata.normalize("NFD", name)} - {name}
