"""The gate on invented durations: its decisions, outputs and counts."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from ddpcheck.contract import TYPICAL, Capabilities
from ddpcheck.seeded_values import Array
from ddpcheck.storage.files import UnreadableFile
from ddpcheck.trace import RankTrace, Trace
from ddpcheck.trace import Record as Recorded
from ddpcheck_benchmarks.gate.command import command
from ddpcheck_benchmarks.gate.decision import BASE, HEAD, Design
from ddpcheck_benchmarks.gate.gate_benchmarks import TCP_BYTES, Benchmark, benchmark_named, usual
from ddpcheck_benchmarks.gate.launches import Pairing, Seen, Toss
from ddpcheck_benchmarks.gate.pytest_benchmark_files import save_sides
from ddpcheck_benchmarks.gate.record import MeasuredSide, Record
from ddpcheck_benchmarks.gate.result import result_of
from ddpcheck_benchmarks.gate.stages import Progress, _launch_until
from ddpcheck_benchmarks.gate.summary import LONGEST, markdown
from ddpcheck_benchmarks.gate.traffic import Tally, tallies

PROMISED = TYPICAL.of_facets("replica", "collectives")


def gate(*words: str) -> Result:
    return CliRunner().invoke(command, words)


def recorded(ratio: float, confirmed: float | None = None, control: float | None = None, measured: int = 12) -> Record:
    """A Record of one benchmark on a machine with noise of 5 %, after `measured` launches."""
    rng = np.random.default_rng(7)
    one = Benchmark("all_reduce:1MiB", "all_reduce", 1 << 20, calls=4)
    places = (
        MeasuredSide("base", "main 1234567", {"commit": "1234567"}),
        MeasuredSide("head", "working tree 89abcde", {}),
    )
    record = Record("mine", 2, 11, Design(), (one,), places, least={one.name: one.least_bytes(2, PROMISED)})
    record.seen[one.name] = Seen()
    counts = ({"bytes": 1 << 20, "messages": 2},) * 2
    for side in (BASE, HEAD):
        record.seen[one.name].add(side, 0, counts)
    for stage, slower, launches in (
        ("measurement", ratio, measured),
        ("confirmation", confirmed, 16),
        ("control", control, 12),
    ):
        if slower is None:
            continue
        for _ in range(launches):
            raw = 2e-3 * rng.lognormal(0, 0.05, (10, 2, 6, 2))
            raw[:, HEAD] *= slower
            record.add(stage, {one.name: raw})  # type: ignore[arg-type]
    return record


@pytest.mark.parametrize(
    ("record", "status", "strictly", "says"),
    [
        (recorded(1.0), 0, 0, "no regression"),
        (recorded(1.3, 1.3, 1.0), 1, 1, "REGRESSION (slower: all_reduce:1MiB)"),
        (
            recorded(1.3, 1.0),
            0,
            2,
            "no regression shown; undecided: all_reduce:1MiB; slower at first (all_reduce:1MiB +3",
        ),
        (recorded(1.3, 1.3, 1.3), 0, 2, "undecided"),
        (recorded(1.3, 1.3, 0.7), 0, 2, "undecided"),
        (recorded(0.7), 0, 0, "no regression"),
        (recorded(1.3, measured=9), 0, 2, "9 launches so far, and a verdict takes 12 or more"),
        (recorded(1.3, measured=0), 0, 2, "0 launches so far, and a verdict takes 12 or more"),
    ],
    ids=["equal", "slower", "unconfirmed", "noisy", "noisy-the-other-way", "faster", "ended-early", "not-timed"],
)
def test_a_replay_decides_again(record: Record, status: int, strictly: int, says: str, tmp_path: Path) -> None:
    record.save(tmp_path / "gate.npz")
    page = tmp_path / "page.md"
    shown = gate("--replay", str(tmp_path / "gate.npz"), "--markdown", str(page))
    assert (shown.exit_code, says in shown.output) == (status, True), shown.output
    assert gate("--replay", str(tmp_path / "gate.npz"), "--strict").exit_code == strictly
    again = Record.load_from(tmp_path / "gate.npz")
    assert markdown(again, result_of(again)) == markdown(record, result_of(record)) == page.read_text()


def test_verdict_first_and_short() -> None:
    record = recorded(1.3, 1.3, 1.0)
    text = markdown(record, result_of(record))
    assert text.splitlines()[0] == "## ddpcheck gate: mine, 2 ranks: REGRESSION (slower: all_reduce:1MiB)"
    assert len(text) <= LONGEST
    assert "0.5 ms" not in text
    (line,) = [line for line in text.splitlines() if "SLOWER |" in line]
    base, head = (float(cell) for cell in line.split("|")[2:4])
    assert head / base == pytest.approx(1.3, rel=0.05)
    assert base == pytest.approx(0.5, rel=0.1)  # milliseconds of one call; four were timed together


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (recorded(1.0), r"not told apart \(-\d\.\d % to \+\d\.\d %\)"),
        (recorded(1.3, 1.3, 1.0), r"\+(29|30|31)\.\d % \(\+\d+\.\d % to \+\d+\.\d %\)"),
        (recorded(1.0, measured=3), r"no interval yet: 3 launches are too few for 99 %"),
    ],
    ids=["equal", "slower", "too-few"],
)
def test_a_change_stands_beside_its_interval(record: Record, says: str, tmp_path: Path) -> None:
    record.save(tmp_path / "gate.npz")
    shown = gate("--replay", str(tmp_path / "gate.npz"))
    assert re.search(says, " ".join(shown.output.split())), shown.output
    assert re.search(says, markdown(record, result_of(record)))


class Clockwork(Pairing):
    """Launches that take no time."""

    def __init__(self) -> None:
        pass

    def measure(
        self, benchmarks: Sequence[Benchmark], pairs: int, toss: Toss, seen: Mapping[str, Seen]
    ) -> dict[str, Array]:
        return {each.name: np.full((pairs, 2, 6, 2), 1e-3) for each in benchmarks}


def test_every_look_is_reported_and_every_launch_kept() -> None:
    record, looked, launches = recorded(1.0, measured=0), list[str](), list[int]()
    (one,) = record.benchmarks
    heard = Progress(
        looked=looked.append, launched=lambda seen: launches.append(len(seen.raw["measurement"][one.name]))
    )
    _launch_until(record, "measurement", Clockwork(), [one], (7, 12), lambda _: False, heard)
    assert launches == [*range(1, 13)]
    assert looked == [
        "measurement, after 7 launches: all_reduce:1MiB no interval yet: 7 launches are too few for 99 %",
        "measurement, after 12 launches: all_reduce:1MiB not told apart (+0.0 % to +0.0 %)",
    ]


def test_no_launch_begins_after_the_time_limit() -> None:
    record = recorded(1.0, measured=0)
    _launch_until(record, "measurement", Clockwork(), record.benchmarks, (12,), lambda _: False, Progress(ends_at=0.0))
    assert record.launches("measurement", record.benchmarks[0].name) is None


def test_too_little_time_is_told_after_the_first_launch() -> None:
    told: list[str] = []
    record = recorded(1.0, measured=1)
    record.seconds["measurement"] = 60.0
    Progress(looked=told.append, ends_at=time.monotonic() + 3600.0).warn_of_too_little_time(record, "measurement", 12)
    assert not told
    Progress(looked=told.append, ends_at=time.monotonic() + 240.0).warn_of_too_little_time(record, "measurement", 12)
    assert "about 12 minutes, but" in told[0]


def test_sides_are_stored_as_pytest_benchmark_does(tmp_path: Path) -> None:
    record = recorded(1.3, 1.3, 1.0)
    base, head = (json.loads(path.read_text()) for path in save_sides(record, result_of(record), tmp_path, "gate.npz"))
    assert base["commit_info"]["id"] == "1234567"
    (one,), (other,) = base["benchmarks"], head["benchmarks"]
    assert one["fullname"] == other["fullname"]
    assert one["extra_info"]["change"]["told_apart"]
    assert one["stats"]["rounds"] == len(one["stats"]["data"]) == 12
    assert one["stats"]["ops"] == pytest.approx(1 / one["stats"]["mean"])
    assert other["stats"]["median"] / one["stats"]["median"] == pytest.approx(1.3, rel=0.05)


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 broken"])
def test_invalid_record_is_reported(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "gate.npz").write_bytes(content)
    with pytest.raises(UnreadableFile, match="cannot be read"):
        Record.load_from(tmp_path / "gate.npz")
    assert gate("--replay", str(tmp_path / "gate.npz")).exit_code == 2


# --------------------------------------------------------------------------------------------------------------- traffic


def judged(base: Sequence[float], head: Sequence[float], least: float | None = None, name: str = "bytes") -> str:
    seen = Seen()
    seen.add(BASE, 0, tuple({name: count} for count in base))
    seen.add(HEAD, 0, tuple({name: count} for count in head))
    (tally,) = tallies(seen, least, promised=True)
    return "wasteful" if tally.wasteful else tally.judged


def test_one_more_on_any_rank_is_more() -> None:
    assert judged([5, 5], [5, 5]) == "equal"
    assert judged([5, 5], [5, 6]) == "more"
    assert judged([5, 5], [4, 5]) == "less"
    assert judged([5, 5], [4, 6]) == "more"  # the busiest rank sends more
    assert judged([9, 5], [8, 6]) == "moved"


def test_a_change_of_a_rank_that_is_not_the_busiest_is_shown() -> None:
    assert Tally("bytes", (5, 9), (6, 7), "moved").compared == ("busiest rank", 9, 7)
    assert Tally("bytes", (5, 9), (7, 9), "more").compared == ("rank 0", 5, 7)
    assert Tally("bytes", (5, 9), (5, 9), "equal").compared == ("busiest rank", 9, 9)


def test_a_promise_is_kept_or_not() -> None:
    least = 1 << 20
    assert judged([least, least], [least, least], least) == "equal"
    assert judged([2 * least, 0], [2 * least, 0], least) == "wasteful"
    assert judged([2 * least, 0], [2 * least, 0], least, "messages") == "equal"
    assert judged([200, 0], [200, 0], 100) == "equal"  # small arrays may use another algorithm


def test_the_kernels_bytes_may_differ_by_a_hundredth() -> None:
    assert judged([1000, 1000], [1010, 1005], name=TCP_BYTES) == "equal"
    assert judged([1000, 1000], [1011, 1000], name=TCP_BYTES) == "more"
    seen = Seen()
    for bytes_ in (1000, 1009):
        seen.add(BASE, 0, ({TCP_BYTES: bytes_},))
    seen.add(HEAD, 0, ({TCP_BYTES: 2000},))
    assert tallies(seen, None, promised=False)[0].judged == "more"
    seen.add(BASE, 0, ({TCP_BYTES: 1500},))
    assert tallies(seen, None, promised=False)[0].judged == "varies"


def test_counts_that_vary_or_are_missing_are_not_compared() -> None:
    seen = Seen()
    assert tallies(seen, None, promised=False)[0].judged == "not counted"
    for count in (1, 2):
        seen.add(BASE, 0, ({"bytes": count},))
    seen.add(HEAD, 0, ({"bytes": 1},))
    assert tallies(seen, None, promised=False)[0].judged == "varies"


# ------------------------------------------------------------------------------------------------------------ launches


def test_tosses_are_fair_reproducible_and_reversed_for_confirmation() -> None:
    tosses = [Toss.of(3, "measurement", launch) for launch in range(200)]
    assert tosses == [Toss.of(3, "measurement", launch) for launch in range(200)]
    assert [toss.reversed() for toss in tosses] == [Toss.of(3, "confirmation", launch) for launch in range(200)]
    for draw in ([toss.started_first for toss in tosses], [toss.works_first for toss in tosses]):
        assert 70 < sum(draw) < 130
    assert len({(toss.started_first, toss.works_first) for toss in tosses}) == 4


def test_sides_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    pairing = Pairing.__new__(Pairing)
    pairing._world_size = 1
    turns: list[int] = []

    def burst(side: int, *_: object) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        turns.append(side)
        return np.full((6, 1), float(side))

    monkeypatch.setattr(Pairing, "burst", lambda self, *rest: burst(*rest))
    monkeypatch.setattr(Pairing, "launch", lambda self, toss: _nothing())
    one = replace(benchmark_named("barrier"), iterations=6)
    made = pairing.measure([one], 4, Toss(0, 1), {one.name: Seen()})
    assert turns == [1, 0, 0, 1, 0, 1, 1, 0]
    assert (made[one.name][:, HEAD] == 1).all()
    assert (made[one.name][:, BASE] == 0).all()


def _nothing() -> object:
    from contextlib import nullcontext

    return nullcontext()


@pytest.mark.parametrize(
    ("promised", "names"),
    [
        (PROMISED, ["step", "all_reduce:1MiB"]),
        (TYPICAL.of_facets("replica"), ["step"]),
        (TYPICAL.of_facets("sampler"), []),
    ],
)
def test_default_measurements(promised: Capabilities, names: list[str]) -> None:
    assert [one.name for one in usual(promised)] == names


def test_short_calls_are_repeated_within_an_iteration() -> None:
    short = benchmark_named("all_reduce:4B")
    assert short.calibrated(14e-6).calls == 143
    assert short.calibrated(5e-3).calls == 1
    assert short.calibrated(0.0).calls == 500
    assert benchmark_named("step").calibrated(1.6e-3).calls == 1


def test_several_steps_make_one_iteration() -> None:
    """Six steps on two ranks, three to an iteration: from the first step's begin to the last step's end."""
    begin = np.arange(6.0)
    records = [
        RankTrace(
            rank, "done", (Recorded(0, "measure_steps", 0.0, 9.0, {"begin": begin, "end": begin + 0.5 + 0.25 * rank}),)
        )
        for rank in range(2)
    ]
    times = Benchmark("step", "step", calls=3).durations(Trace(tuple(records)))
    assert times.tolist() == [[2.5, 2.75], [2.5, 2.75]]
