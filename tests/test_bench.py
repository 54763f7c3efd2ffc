"""What a sweep writes, and what its numbers mean; one small sweep is run for real."""

from __future__ import annotations

import json
import math
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from ddpcheck.capabilities import Capabilities
from ddpcheck_benchmarks import stats
from ddpcheck_benchmarks.bench import command, exit_code
from ddpcheck_benchmarks.cases import COLLECTIVES, Case, bus_factor, cases
from ddpcheck_benchmarks.effort import Effort
from ddpcheck_benchmarks.ranks_time import slowest, spread
from ddpcheck_benchmarks.records import Point, Results
from ddpcheck_benchmarks.sizes import ladder, named, size, sizes
from ddpcheck_benchmarks.table import tables

EVERYTHING = Capabilities(facets=frozenset({"collectives"}), in_place=True)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of one small sweep."""
    file = tmp_path_factory.mktemp("bench") / "results.json"
    options = ["-w", "2", "--sizes", "4B,64KiB", "--launches", "2", "--quick", "--json", str(file)]
    done = CliRunner().invoke(command, ["ddpcheck_implementations.numpy_sockets:adapter", *options])
    assert done.exit_code == 0, done.output
    assert "numpy_sockets, all_reduce, 2 ranks" in done.output
    return file


def test_every_collective_and_size_has_a_benchmark(measured: Path) -> None:
    found = {entry["name"]: entry for entry in json.loads(measured.read_text())["benchmarks"]}
    assert len(found) == 5 * 2 + 1  # in all_gather and reduce_scatter 4 B is rounded up to 8 B
    entry = found["all_reduce[numpy_sockets-p2-64KiB-float32]"]
    info: dict[str, Any] = entry["extra_info"]
    assert {
        key: info[key] for key in ("kind", "adapter", "collective", "world_size", "bytes", "in_place", "wrong")
    } == {
        "kind": "collective",
        "adapter": "numpy_sockets",
        "collective": "all_reduce",
        "world_size": 2,
        "bytes": 65536,
        "in_place": False,
        "wrong": 0,
    }
    assert len(entry["stats"]["data"]) == info["launches"] == 2
    assert info["algbw"] == pytest.approx(65536 / entry["stats"]["median"] / 1e9)
    assert info["busbw"] == pytest.approx(info["algbw"])  # 2 (n - 1) / n is 1 for two ranks
    assert len(info["ranks"]) == 2
    assert sum(rank["slowest"] for rank in info["ranks"]) == pytest.approx(1)


def test_every_iteration_of_every_rank_is_kept(measured: Path) -> None:
    data = json.loads(measured.read_text())
    with np.load(measured.with_name(data["ddpcheck"]["archive"])) as archive:
        for entry in data["benchmarks"]:
            info = entry["extra_info"]
            for launch, value in enumerate(entry["stats"]["data"]):
                begin, end = (archive[f"{entry['name']}/{launch}/{stamp}"] for stamp in ("begin", "end"))
                assert begin.shape == end.shape == (2, info["iterations"])
                parts = info["calls"] * (2 if info["collective"] == "send_recv" else 1)
                assert np.median(slowest(begin, end)) / parts == pytest.approx(value)


def test_pytest_benchmark_compares_it(measured: Path) -> None:
    pytest.importorskip("pytest_benchmark")
    other = shutil.copy(measured, measured.with_name("other.json"))  # the same file twice is too much for it
    done = subprocess.run(
        [sys.executable, "-m", "pytest_benchmark", "compare", str(measured), str(other)],
        capture_output=True,
        text=True,
        cwd=measured.parent,
    )
    assert done.returncode == 0, done.stderr
    assert "all_reduce[numpy_sockets-p2-64KiB-float32]" in done.stdout


def test_summaries_are_those_of_pytest_benchmark() -> None:
    theirs = pytest.importorskip("pytest_benchmark.stats").Stats
    draw = random.Random(5)
    for count in range(1, 12):
        data = [draw.lognormvariate(0, 1) for _ in range(count)]
        expected = theirs()
        for value in data:
            expected.update(value)
        ours = stats.summary(data)
        for name, value in expected.as_dict().items():
            if name not in ("q1", "q3", "iqr", "iqr_outliers", "outliers", "ld15iqr", "hd15iqr"):
                assert ours[name] == pytest.approx(value), name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4B..256", (4, 32, 256)),
        ("4B..100B", (4, 32, 100)),
        ("64KiB,4B", (4, 65536)),
        ("1MiB", (1 << 20,)),
    ],
)
def test_sizes_are_read_as_written(text: str, expected: tuple[int, ...]) -> None:
    assert sizes(text) == expected


@pytest.mark.parametrize("text", ["", "four", "0B", "2MiB..1MiB", "4 parsecs"])
def test_what_is_no_size_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        sizes(text)


def test_names_of_sizes_are_exact() -> None:
    assert [named(count) for count in (4, 1024, 1536, 25 << 20, 3 << 30)] == ["4B", "1KiB", "1536B", "25MiB", "3GiB"]
    assert all(size(named(count)) == count for count in ladder(4, 1 << 28, 3))


def test_cases_follow_the_promises() -> None:
    every = cases("x", EVERYTHING, 3, COLLECTIVES, (4, 1000))
    assert {case.collective for case in every} == set(COLLECTIVES)
    assert all(case.count % 3 == 0 for case in every if case.collective in ("all_gather", "reduce_scatter"))
    assert sum(case.in_place for case in every) == 2
    alone = cases("x", EVERYTHING, 1, COLLECTIVES, (4,))
    assert "send_recv" not in {case.collective for case in alone}
    assert cases("x", Capabilities(), 2, COLLECTIVES, (4,)) == []


def test_bus_factors_are_those_of_nccl_tests() -> None:
    factors = {name: bus_factor(name, 4) for name in COLLECTIVES}
    assert factors == {
        "all_reduce": 1.5,
        "all_gather": 0.75,
        "reduce_scatter": 0.75,
        "broadcast": 1,
        "send_recv": 1,
        "barrier": 1,
    }


def test_the_slowest_rank_counts_in_each_iteration() -> None:
    begin = np.array([[0.0, 10.0], [0.5, 10.0]])
    end = np.array([[1.0, 13.0], [2.5, 11.0]])
    assert slowest(begin, end).tolist() == [2.0, 3.0]
    found = spread(begin, end, parts=2)
    assert [rank["slowest"] for rank in found["ranks"]] == [0.5, 0.5]
    assert found["global_seconds"] == (2.5 + 3.0) / 2 / 2


def test_short_calls_are_made_several_times_to_an_iteration() -> None:
    effort = Effort(budget=0.1, least=5, most=200)
    assert effort.calls(1e-3) == 1
    assert effort.calls(1e-6) == 20
    assert effort.iterations(1e-5) == 200
    assert effort.iterations(0.001) == 100
    assert effort.iterations(0.03) == 5
    assert effort.iterations(1.0) == 3


def test_rank_sum_is_exact() -> None:
    assert stats.larger([4, 5, 6], [1, 2, 3]) == 1 / math.comb(6, 3)
    assert stats.larger([1, 2, 3], [4, 5, 6]) == 1
    assert stats.larger([1.0] * 5, [1.0] * 5) == 1
    many = [random.Random(1).gauss(0, 1) for _ in range(30)]
    assert stats.larger([value + 3 for value in many], many) < 1e-6


def test_wrong_elements_have_an_exit_status_of_their_own(tmp_path: Path) -> None:
    results = Results({}, tmp_path / "x.json")
    assert exit_code(results) == 1  # nothing was measured
    case = Case("x", 2, "all_reduce", 4)
    point = results.add(Point(case.name, "all_reduce", {**case.info(1e-3, 2), "wrong": 0}), 1e-3)
    assert exit_code(results) == 0
    point.info["wrong"] = 3
    assert exit_code(results) == 3
    assert any(line.split()[-1] == "3" for line in next(iter(tables(results.sorted()))).splitlines())


def test_an_interruption_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ddpcheck_benchmarks import sweep

    sessions = []
    real = sweep._one_session

    def interrupted(*arguments: Any) -> None:
        if sessions:
            raise KeyboardInterrupt
        sessions.append(1)
        real(*arguments)

    monkeypatch.setattr(sweep, "_one_session", interrupted)
    file = tmp_path / "results.json"
    options = ["-w", "2", "--sizes", "4B", "--collectives", "barrier", "--quick", "--json", str(file)]
    done = CliRunner().invoke(command, ["ddpcheck_implementations.numpy_sockets:adapter", *options])
    assert done.exit_code == 130
    (entry,) = json.loads(file.read_text())["benchmarks"]
    assert entry["extra_info"]["launches"] == 1
