"""A failing Job with its ranks side by side: arguments and results, operation by operation."""

from __future__ import annotations

from typing import Any

from ddpcheck.storage.dataclass_json import to_plain
from ddpcheck.verdict import Verdict

from .html import Html, tag

_MOST_OPERATIONS, _MOST_RANKS, _LONGEST = 40, 8, 160


def ranks_table(verdict: Verdict) -> Html:
    """A column for each rank; empty if the failure has neither a Job nor outcomes of ranks."""
    job, diagnosis = verdict.job, verdict.diagnosis
    fates = diagnosis.by_rank if diagnosis else ()
    if job is None and not fates:
        return Html("")
    ranks = range(min(job.world_size if job else len(fates), _MOST_RANKS))
    rows = []
    for position, operation in enumerate(job.operations[:_MOST_OPERATIONS] if job else ()):
        here = diagnosis is not None and position == diagnosis.operation
        cells = _cells(to_plain(operation), len(ranks), job.world_size if job else 0)
        rows.append(tag("tr", tag("th", f"{position} {operation.kind}"), *cells, class_="here" if here else None))
    if job and len(job.operations) > _MOST_OPERATIONS:
        left = f"... {len(job.operations) - _MOST_OPERATIONS} more operations; ddpcheck replay shows all"
        rows.append(tag("tr", tag("td", left, colspan=len(ranks) + 1)))
    if fates:
        rows.append(
            tag("tr", tag("th", "in the end"), *(tag("td", fates[rank]) for rank in ranks if rank < len(fates)))
        )
    head = tag("tr", tag("th", "operation"), *(tag("th", f"rank {rank}") for rank in ranks))
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="ranks")
    return tag("div", table, class_="scroll")


def _cells(data: dict[str, Any], shown: int, world_size: int) -> list[Html]:
    """The arguments of an operation: fields with an entry for each rank in columns, others across all columns."""
    fields = {name: value for name, value in data.items() if name != "kind"}
    split = {
        name: value
        for name, value in fields.items()
        if isinstance(value, list) and len(value) == world_size > 1 and any(isinstance(part, list) for part in value)
    }
    common = " ".join(f"{name}={_compact(value)}" for name, value in fields.items() if name not in split)
    if not split:
        return [tag("td", _cut(common), colspan=shown, class_="all")]
    own = [" ".join(f"{name}={_compact(value[rank])}" for name, value in split.items()) for rank in range(shown)]
    return [tag("td", _cut(f"{each} {common}".strip())) for each in own]


def _compact(value: Any) -> str:
    if isinstance(value, dict):
        inside = " ".join(f"{name}={_compact(part)}" for name, part in value.items() if name != "kind")
        return f"{value.get('kind', '')}({inside})"
    if isinstance(value, list):
        return f"[{', '.join(map(_compact, value))}]"
    return str(value)


def _cut(words: str) -> str:
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]} ..."
