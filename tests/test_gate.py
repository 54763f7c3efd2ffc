"""The gate from end to end: on a repository with two commits, with adapters whose traffic or results differ."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from ddpcheck.capabilities import Capabilities
from ddpcheck.results import UnreadableFile
from ddpcheck.trace import RankTrace, Trace
from ddpcheck.trace import Record as Recorded
from ddpcheck_benchmarks.gate.command import command
from ddpcheck_benchmarks.gate.decision import BASE, HEAD, Design
from ddpcheck_benchmarks.gate.launches import Pairing, Seen, Toss
from ddpcheck_benchmarks.gate.record import Place, Record
from ddpcheck_benchmarks.gate.result import result_of
from ddpcheck_benchmarks.gate.storage import save_sides
from ddpcheck_benchmarks.gate.summary import LONGEST, markdown
from ddpcheck_benchmarks.gate.traffic import tallies
from ddpcheck_benchmarks.gate.workload import Benchmark, benchmark_named, usual

PLANTED = "from ddpcheck_implementations.planted import {} as adapter\n"


def git(folder: Path, *words: str) -> str:
    names = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
    return subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """One commit, on `main`, with an adapter in src/mine.py that is the reference. Nothing of a gate may stay behind: no
    worktree, and nothing in `temporary`, where temporary folders go.
    """
    root = tmp_path / "repository"
    (root / "src").mkdir(parents=True)
    (root / "src" / "mine.py").write_text(PLANTED.format("plain"))
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "the reference")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(root)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    yield root
    assert git(root, "worktree", "list").count("\n") == 1
    assert list((tmp_path / "temporary").iterdir()) == []


def gate(*words: str) -> Result:
    return CliRunner().invoke(command, words)


def plant(root: Path, name: str) -> None:
    (root / "src" / "mine.py").write_text(PLANTED.format(name))


@pytest.mark.parametrize(
    ("planted", "says"),
    [("extra_all_reduce", "messages per step"), ("unbucketed", "messages per step"), ("doubled", "bytes per step")],
)
def test_more_traffic_fails(repository: Path, planted: str, says: str) -> None:
    plant(repository, planted)
    page = repository.parent / "page.md"
    shown = gate("mine:adapter", "--base", "main", "--counts-only", "--benchmarks", "step", "--markdown", str(page))
    assert shown.exit_code == 1, shown.output
    assert "REGRESSION (more traffic: step)" in shown.output
    found = next(line for line in page.read_text().splitlines() if says in line)
    assert "MORE" in found


def test_equal_traffic_passes_and_a_file_is_as_good_as_a_module(repository: Path) -> None:
    (repository / "src" / "mine.py").write_text("# new\n" + PLANTED.format("plain"))
    shown = gate("src/mine.py:adapter", "--base", "main", "--counts-only")
    assert shown.exit_code == 0, shown.output
    assert "no regression" in shown.output


def test_more_traffic_may_be_meant(repository: Path) -> None:
    plant(repository, "extra_all_reduce")
    git(repository, "commit", "-q", "-a", "-m", "head")
    words = ("mine:adapter", "--base", "main~1", "--head", "main", "--counts-only", "--benchmarks", "step")
    assert gate(*words).exit_code == 1
    assert gate(*words, "--accept-more").exit_code == 0


def test_wrong_results_come_first(repository: Path) -> None:
    plant(repository, "doubled")
    losing = Path(__file__).with_name("test_measuring.py").read_text()
    (repository / "src" / "mine.py").write_text(losing.replace("losing =", "adapter ="))
    shown = gate("mine:adapter", "--base", "main", "--benchmarks", "all_reduce:4KiB")
    assert shown.exit_code == 3, shown.output
    assert "WRONG results: all_reduce:4KiB" in shown.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("mine:adapter", "--base", "nowhere"), "nowhere"),
        (("mine:adapter",), "name an adapter and --base"),
        (("mine:absent", "--base", "main"), "has no attribute 'absent'"),
        (("mine:adapter", "--base", "main", "--benchmarks", "all_reduce"), "should have a size"),
        (("mine:adapter", "--base", "main", "--benchmarks", "all_reduce:3B"), "write a size that 4 divides"),
        (("mine:adapter", "--base", "main", "--benchmarks", "all_reduce:64K"), "is no size: write bytes"),
        (("mine:adapter", "--base", "main", "--benchmarks", "stop"), "did you mean step?"),
        (("mine:adapter", "--base", "main", "--benchmarks", "broadcast:4B:in_place"), "in place"),
        (("mine:adapter", "--base", "main", "--setup", "exit 3"), "'exit 3' failed with exit status 3"),
        (("mine:adapter", "--base", "main", "--base-python", "/nowhere/python"), "/nowhere/python cannot be run"),
    ],
)
@pytest.mark.usefixtures("repository")
def test_what_cannot_be_measured_is_told(words: tuple[str, ...], says: str) -> None:
    shown = gate(*words)
    assert shown.exit_code == 2
    assert says in " ".join(shown.output.split()).replace("│ ", "")


def test_a_base_without_the_adapter_is_told(repository: Path) -> None:
    (repository / "src" / "newer.py").write_text(PLANTED.format("plain"))
    shown = gate("newer:adapter", "--base", "main", "--counts-only")
    assert shown.exit_code == 2
    assert "no module 'newer'" in shown.output


def test_a_base_with_an_older_harness_is_told(repository: Path) -> None:
    """Its own ddpcheck, which goes before ours, has no measuring operations."""
    import ddpcheck

    old = repository / "src" / "ddpcheck"
    old.mkdir()
    theirs = Path(ddpcheck.__file__).parent
    for place in theirs.iterdir():
        if place.name not in ("job.py", "__pycache__"):
            (old / place.name).symlink_to(place)
    job = (theirs / "job.py").read_text()
    (old / "job.py").write_text(
        job
        + "\n\n@staticmethod\ndef _old(data: Any) -> Job:\n    raise ValueError('unknown kind')\n\n\nJob.from_plain = _old\n"
    )
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "with a harness of its own")
    shown = gate("mine:adapter", "--base", "main", "--counts-only")
    assert shown.exit_code == 2
    assert "it is older than the gate; choose a later --base" in " ".join(shown.output.split())


def test_an_adapter_from_elsewhere_is_not_compared_with_itself(repository: Path) -> None:
    """The module would be found beside the repository, where both sides would find the same one."""
    elsewhere = repository.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "installed.py").write_text(PLANTED.format("plain"))
    sys.path.append(str(elsewhere))
    shown = gate("installed:adapter", "--base", "main", "--counts-only")
    assert shown.exit_code == 2
    assert "both sides would be the same code" in " ".join(shown.output.split())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_nothing(repository: Path, number: signal.Signals) -> None:
    temporary = repository.parent / "temporary"
    program = "from ddpcheck_benchmarks.gate.command import command; command()"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    words = [sys.executable, "-c", program, "mine:adapter", "--base", "main", "--benchmarks", "all_reduce:4B"]
    running = subprocess.Popen(
        words,
        env=os.environ | {"PYTHONPATH": path, "TMPDIR": str(temporary), "TERM": "dumb"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    ranks = _ranks_below(running)
    running.send_signal(number)
    running.communicate(timeout=60)
    assert running.returncode != 0
    assert [pid for pid in ranks if _words_of(pid)] == []


def _ranks_below(running: subprocess.Popen[bytes]) -> list[int]:
    """Wait until ranks run below this process; who they are."""
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    while running.poll() is None:
        ranks = [int(child) for child in children.read_text().split() if "ddpcheck.worker" in _words_of(int(child))]
        if len(ranks) >= 2:
            return ranks
    raise AssertionError(running.communicate()[0])


def _words_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:  # it has ended; of one that nobody has waited for yet the line is empty
        return ""


# ------------------------------------------------------------------------------- decisions on clocks that were never read

PROMISED = Capabilities(facets=frozenset({"replica", "collectives"}))


def recorded(ratio: float, confirmed: float | None = None, control: float | None = None) -> Record:
    """What a gate would have recorded of one benchmark on a machine with noise of 5 %."""
    rng = np.random.default_rng(7)
    one = Benchmark("all_reduce:1MiB", "all_reduce", 1 << 20, calls=4)
    places = (Place("base", "main 1234567", {"commit": "1234567"}), Place("head", "working tree 89abcde", {}))
    record = Record("mine", 2, 11, Design(), (one,), places, least={one.name: one.least_bytes(2, PROMISED)})
    record.seen[one.name] = Seen()
    counts = ({"bytes": 1 << 20, "messages": 2},) * 2
    for side in (BASE, HEAD):
        record.seen[one.name].add(side, 0, counts)
    for stage, slower, launches in (
        ("measurement", ratio, 12),
        ("confirmation", confirmed, 16),
        ("control", control, 12),
    ):
        for _ in range(launches if slower is not None else 0):
            raw = 2e-3 * rng.lognormal(0, 0.05, (10, 2, 6, 2))
            raw[:, HEAD] *= slower
            record.add(stage, {one.name: raw})  # type: ignore[arg-type]
    return record


@pytest.mark.parametrize(
    ("record", "status", "strictly", "says"),
    [
        (recorded(1.0), 0, 0, "no regression"),
        (recorded(1.3, 1.3, 1.0), 1, 1, "REGRESSION (slower: all_reduce:1MiB)"),
        (recorded(1.3, 1.0), 0, 2, "no regression shown; undecided"),
        (recorded(1.3, 1.3, 1.3), 0, 2, "undecided"),
        (recorded(1.3, 1.3, 0.7), 0, 2, "undecided"),
        (recorded(0.7), 0, 0, "no regression"),
    ],
    ids=["equal", "slower", "unconfirmed", "noisy", "noisy-the-other-way", "faster"],
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
    assert base == pytest.approx(0.5, rel=0.1)  # milliseconds of one call, of which four were timed together


def test_sides_are_stored_as_pytest_benchmark_does(tmp_path: Path) -> None:
    record = recorded(1.3, 1.3, 1.0)
    base, head = (json.loads(path.read_text()) for path in save_sides(record, result_of(record), tmp_path, "gate.npz"))
    assert base["commit_info"]["id"] == "1234567"
    (one,), (other,) = base["benchmarks"], head["benchmarks"]
    assert one["fullname"] == other["fullname"]
    assert one["stats"]["rounds"] == len(one["stats"]["data"]) == 12
    assert one["stats"]["ops"] == pytest.approx(1 / one["stats"]["mean"])
    assert other["stats"]["median"] / one["stats"]["median"] == pytest.approx(1.3, rel=0.05)


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 broken"])
def test_a_file_that_is_no_record_is_told(content: bytes, tmp_path: Path) -> None:
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
    assert judged([5, 5], [4, 6]) == "more"  # the busiest rank has more to do
    assert judged([9, 5], [8, 6]) == "moved"


def test_a_promise_is_kept_or_not() -> None:
    least = 1 << 20
    assert judged([least, least], [least, least], least) == "equal"
    assert judged([2 * least, 0], [2 * least, 0], least) == "wasteful"
    assert judged([2 * least, 0], [2 * least, 0], least, "messages") == "equal"
    assert judged([200, 0], [200, 0], 100) == "equal"  # small arrays may take another way


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
    one = benchmark_named("barrier")
    made = pairing.measure([one], 4, 6, Toss(0, 1), {one.name: Seen()})
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
        (Capabilities(facets=frozenset({"replica"})), ["step"]),
        (Capabilities(facets=frozenset({"sampler"})), []),
    ],
)
def test_what_is_measured_if_nobody_says(promised: Capabilities, names: list[str]) -> None:
    assert [one.name for one in usual(promised)] == names


def test_short_calls_are_repeated_within_an_iteration() -> None:
    short = benchmark_named("all_reduce:4B")
    assert short.calibrated(14e-6).calls == 143
    assert short.calibrated(5e-3).calls == 1
    assert short.calibrated(0.0).calls == 500


def test_several_steps_make_one_iteration() -> None:
    """Six steps on two ranks, three to an iteration: from the begin of the first to the end of the last."""
    begin = np.arange(6.0)
    records = [
        RankTrace(
            rank, "done", (Recorded(0, "measure_steps", 0.0, 9.0, {"begin": begin, "end": begin + 0.5 + 0.25 * rank}),)
        )
        for rank in range(2)
    ]
    times = Benchmark("step", "step", calls=3).durations(Trace(tuple(records)))
    assert times.tolist() == [[2.5, 2.75], [2.5, 2.75]]
