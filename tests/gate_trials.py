"""Many gates on code with a known slow-down: one line of JSON for each, and a table of all."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Trial:
    """One gate on one benchmark. slower: the additional work of head (0.25: 25 %). verdict: decision.Verdict, or
    NOT_MEASURED with the reason. launches: of all stages. estimate: ln(head / base).

    Of real gates also: seconds of the gate; load: this machine's load average at its start; values and fresh: ln(head /
    base) of each launch and of each confirming launch.
    """

    benchmark: str
    slower: float
    seed: int
    verdict: str
    launches: int = 0
    estimate: float = 0.0
    seconds: float | None = None
    load: float | None = None
    values: Sequence[float] = ()
    fresh: Sequence[float] = ()
    reason: str = ""

    @property
    def which(self) -> tuple[str, float, int]:
        """The unique key of this gate."""
        return self.benchmark, self.slower, self.seed

    def append_to(self, file: Path) -> None:
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(asdict(self)) + "\n")


def trials_in(file: Path) -> list[Trial]:
    """All gates in the file; none if there is no file."""
    if not file.exists():
        return []
    return [Trial(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def share(trials: Sequence[Trial], *verdicts: str) -> float:
    """The share of measured gates with one of these verdicts."""
    measured = [trial.verdict for trial in trials if trial.verdict != NOT_MEASURED]
    return sum(verdict in verdicts for verdict in measured) / max(1, len(measured))


def table(trials: Iterable[Trial]) -> str:
    """Markdown, a row for each benchmark and each slow-down."""
    rows: dict[tuple[str, float], list[Trial]] = {}
    for trial in trials:
        rows.setdefault((trial.benchmark, trial.slower), []).append(trial)
    return "\n".join(_lines(dict(sorted(rows.items(), key=lambda row: (row[0][0] != "step", row[0])))))


def _lines(rows: dict[tuple[str, float], list[Trial]]) -> Iterator[str]:
    yield "| benchmark | head | gates | failed | 95 % interval | not confirmed | undecided | found | launches | seconds each |"
    yield "| --- | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |"
    for (benchmark, slower), tried in rows.items():
        measured = [trial for trial in tried if trial.verdict != NOT_MEASURED]
        if not measured:
            continue
        low, high = clopper_pearson(Counter(trial.verdict for trial in measured)["fail"], len(measured))
        found = np.expm1(np.median([trial.estimate for trial in measured]))
        took = [trial.seconds for trial in measured if trial.seconds is not None]
        yield (
            f"| {benchmark} | +{slower:.0%} | {len(measured)} | {share(tried, 'fail'):.1%} | {low:.2%} to {high:.2%} "
            f"| {share(tried, 'unconfirmed', 'advisory'):.1%} | {share(tried, 'inconclusive'):.1%} | {found:+.1%} "
            f"| {np.mean([trial.launches for trial in measured]):.0f} | {f'{np.mean(took):.0f}' if took else '-'} |"
        )
    missing = [trial for tried in rows.values() for trial in tried if trial.verdict == NOT_MEASURED]
    if missing:
        yield ""
        yield f"Not measured: {len(missing)}, of which the last: {missing[-1].reason}"


def clopper_pearson(hits: int, of: int) -> tuple[float, float]:
    """The exact two-sided 95 % interval of a share, by bisection on the binomial distribution."""
    low = 0.0 if not hits else _where(lambda share: 1 - _at_most(hits - 1, of, share) >= 0.025)
    high = 1.0 if hits == of else _where(lambda share: _at_most(hits, of, share) <= 0.025)
    return low, high


def _at_most(hits: int, of: int, share: float) -> float:
    if share in (0.0, 1.0):
        return 1.0 if share == 0.0 or hits >= of else 0.0
    terms = (math.log(math.comb(of, k)) + k * math.log(share) + (of - k) * math.log1p(-share) for k in range(hits + 1))
    return min(1.0, sum(map(math.exp, terms)))


def _where(reached: Callable[[float], bool]) -> float:
    """The smallest share for which `reached` holds; `reached` must be monotonic."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
