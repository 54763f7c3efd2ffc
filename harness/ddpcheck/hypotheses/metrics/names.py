"""Causes of named metrics that are mixed up, missing, or renamed."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...causes import Cause
from ...causes import metrics as causes
from ...job import Aggregate
from ...oracle.means import mean_of
from ..causes_of import causes_of_mean
from .evidence import WrongMean


def why_other_names(
    made: Aggregate,
    wanted: Mapping[str, float],
    wrong: Mapping[str, float],
    close: Mapping[str, float],
    got: Mapping[str, float],
    own: Mapping[str, float],
    earlier: Sequence[Aggregate],
    rank: int,
) -> Cause:
    """wanted: by name; wrong: those that this rank has with another value, or not at all. close: equal to got up to
    rounding.
    """
    if made.turned and all(got.get(name) == _by_place(made, name, rank) for name in wanted):
        return causes.METRICS_BY_POSITION()
    if not wrong:
        return causes.EARLIER_NAMES_RETURNED()
    missing = [name for name in wanted if name not in got]
    if any(_otherwise(name) <= got.keys() or _rewritten(name) & got.keys() for name in missing):
        return causes.NAMES_REWRITTEN()
    if any(_shortened(name, got, wanted[name]) for name in missing):
        return causes.NAME_PREFIX_CUT()
    if any(got.keys() == set(each.names) for each in earlier) and not got.keys() & wanted.keys():
        return causes.NAMES_OF_EARLIER_CALL()
    if sorted(got.values()) == sorted(wanted.values()):
        return causes.NAMES_UNPACKED_IN_OTHER_ORDER()
    if missing:
        return causes.NAMES_MISSING()
    return _why_other_values(made, wanted, wrong, got, own, rank)


def _why_other_values(
    made: Aggregate,
    wanted: Mapping[str, float],
    wrong: Mapping[str, float],
    got: Mapping[str, float],
    own: Mapping[str, float],
    rank: int,
) -> Cause:
    """The cause if all names are present."""
    some = tuple(list(wrong)[:3])
    if all(got[name] == own[name] for name in wrong):
        return causes.NAMED_METRIC_NOT_AGGREGATED(names=some)
    if all(got[name] in _by_another_rule(made, name) for name in wrong):
        return causes.RULE_BY_NAME(names=some)
    if len(cut := {got[name] for name in wrong}) == 1 and _beyond(limit := cut.pop(), wrong):
        return causes.CAPPED_BY_NAME(names=some, limit=limit)
    if all(any(got[name] == wanted[other] and other[:8] == name[:8] for other in wanted) for name in wrong):
        return causes.NAMES_CUT_SHORT()
    if all(got[name] in wanted.values() for name in wrong):
        return causes.NAMES_CONFUSED()
    if alike := common_cause(made, {name: got[name] for name in wrong}, rank):
        return alike
    if len(wanted) > 1 and 0.0 in made.values and not made.turned:
        return causes.EQUAL_METRICS_REDUCED_TOGETHER()
    return causes.METRICS_MIXED_UP()


def _beyond(bound: float, wanted: Mapping[str, float]) -> bool:
    """Whether all values lie beyond a bound on one side, at which a share, or a nonnegative number, ends."""
    return bound in (0.0, 1.0, 100.0) and (min(wanted.values()) > bound or max(wanted.values()) < bound)


def common_cause(made: Aggregate, wrong: Mapping[str, float], rank: int) -> Cause | None:
    """The cause that explains all wrong metrics, as the n-th metric is n times the first; None if there is none."""
    firsts = [wrong[name] / place for place, name in enumerate(made.names, start=1) if name in wrong]
    explained = [dict.fromkeys(causes_of_mean(WrongMean(made, first, rank))) for first in firsts]
    return next((cause for cause in explained[0] if all(cause in others for others in explained)), None)


def _by_place(made: Aggregate, name: str, rank: int) -> float:
    """The mean over ranks of the values at the position where this rank has that name."""
    place = list(made.given(rank)).index(name)
    values = tuple(list(made.given(other).values())[place] for other in range(len(made.values)))
    return mean_of([replace(made, values=values)])


def _by_another_rule(made: Aggregate, name: str) -> list[float]:
    """A metric that is not averaged."""
    values = [made.given(rank)[name] for rank in range(len(made.values))]
    squares = replace(made, values=tuple(value * value for value in values))
    return [sum(values), max(values), min(values), math.sqrt(mean_of([squares]))]


def _otherwise(name: str) -> set[str]:
    """The name without capitals or blanks, or in another form; for a name with several parts, also the parts."""
    parts = {part for part in re.split("[,=;/\n\t]", name) if part != name}
    return parts or {name.lower()}


def _shortened(name: str, got: Mapping[str, float], wanted: float) -> bool:
    """Whether the name after the first underscore has its value."""
    _, _, rest = name.partition("_")
    return bool(rest) and got.get(rest) == wanted


def _rewritten(name: str) -> set[str]:
    """Other spellings of a name with blanks at its ends, or with letters that have several forms."""
    return {name.strip(), unicodedata.normalize("NFKC", name), unicodedata.normalize("NFD", name)} - {name}
