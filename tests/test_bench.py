"""The result file of a sweep, and the meaning of its numbers; one small sweep is run for real."""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from ddpcheck import rank_sum
from ddpcheck.contract import TYPICAL
from ddpcheck.session import Session
from ddpcheck_benchmarks import stats
from ddpcheck_benchmarks.bench import command, exit_code
from ddpcheck_benchmarks.collective_cases import COLLECTIVES, Case, bus_factor, cases
from ddpcheck_benchmarks.consistency import judged
from ddpcheck_benchmarks.iteration_count import Effort
from ddpcheck_benchmarks.nccl_tests_table import legend, step_tables, tables
from ddpcheck_benchmarks.pytest_benchmark_records import Point, Results
from ddpcheck_benchmarks.rank_times import slowest, spread
from ddpcheck_benchmarks.sizes import ladder, named, size, sizes
from ddpcheck_benchmarks.step_cases import NAMED, StepCase, step_cases
from ddpcheck_benchmarks.step_parts import step_parts
from ddpcheck_benchmarks.steps import measure_step
from ddpcheck_benchmarks.time_budget import Allowance

EVERYTHING = TYPICAL.of_facets("collectives").but(in_place=True)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of one small sweep."""
    file = tmp_path_factory.mktemp("bench") / "results.json"
    options = ["-w", "2", "--sizes", "4B,64KiB", "--launches", "2", "--quick", "--steps", "small", "--json", str(file)]
    done = CliRunner().invoke(command, ["ddpcheck_implementations.numpy_sockets:adapter", *options])
    assert done.exit_code == 0, done.output
    assert "numpy_sockets, all_reduce, 2 ranks" in done.output
    return file


def of_kind(file: Path, kind: str) -> list[dict[str, Any]]:
    """Benchmarks of a result file."""
    return [entry for entry in json.loads(file.read_text())["benchmarks"] if entry["extra_info"]["kind"] == kind]


def test_every_collective_and_size_has_a_benchmark(measured: Path) -> None:
    found = {entry["name"]: entry for entry in of_kind(measured, "collective")}
    assert len(found) == 6 * 2 + 1  # all_gather and reduce_scatter round 4 B up to 8 B
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
        for entry in of_kind(measured, "collective"):
            info = entry["extra_info"]
            for launch, value in enumerate(entry["stats"]["data"]):
                begin, end = (archive[f"{entry['name']}/{launch}/{stamp}"] for stamp in ("begin", "end"))
                assert begin.shape == end.shape == (2, info["iterations"])
                parts = info["calls"] * (2 if info["collective"] == "send_recv" else 1)
                assert np.median(slowest(begin, end)) / parts == pytest.approx(value)


def test_steps_are_measured_with_and_without_communication(measured: Path) -> None:
    steps = {entry["name"]: entry for entry in of_kind(measured, "step")}
    assert set(steps) == {"step[numpy_sockets-p2-small-strong]", "step[numpy_sockets-p2-small-weak]"}
    for entry in steps.values():
        info, parts = entry["extra_info"], entry["extra_info"]["parts"]
        assert info["parameters"] == 784 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10
        assert info["global_batch"] == 2 * info["batch"] == (128 if info["scaling"] == "weak" else 64)
        assert len(entry["stats"]["data"]) == len(info["per_launch"]["compute"]) == 2
        assert parts["step"] > parts["optimizer"] > 0
        assert 0 <= parts["hidden"] <= 1
        assert len(info["peak_kib"]) == len(info["cpu_seconds"]) == len(info["timeline"]) == 2
        for spans in info["timeline"]:
            assert spans[-1][0] == "optimizer"
            assert all(0 <= begin <= end for _, begin, end in spans)
    (start,) = of_kind(measured, "startup")
    assert len(start["stats"]["data"]) == 2


def test_pytest_benchmark_compares_it(measured: Path) -> None:
    pytest.importorskip("pytest_benchmark")
    other = shutil.copy(measured, measured.with_name("other.json"))  # the report refuses the same file twice
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
        ("100MB,1.5 kib", (1536, 10**8)),
    ],
)
def test_sizes_are_read_as_written(text: str, expected: tuple[int, ...]) -> None:
    assert sizes(text) == expected


@pytest.mark.parametrize("text", ["", "four", "0B", "2MiB..1MiB", "4 parsecs", "64K", "-4B", "0.5B", "1..2.5"])
def test_invalid_size_is_reported(text: str) -> None:
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
    assert cases("x", TYPICAL.of_facets("replica"), 2, COLLECTIVES, (4,)) == []


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
    assert rank_sum.larger([4, 5, 6], [1, 2, 3]) == 1 / math.comb(6, 3)
    assert rank_sum.larger([1, 2, 3], [4, 5, 6]) == 1
    assert rank_sum.larger([1.0] * 5, [1.0] * 5) == 1
    many = [random.Random(1).gauss(0, 1) for _ in range(30)]
    assert rank_sum.larger([value + 3 for value in many], many) < 1e-6


def test_wrong_elements_have_an_exit_status_of_their_own(tmp_path: Path) -> None:
    results = Results({}, tmp_path / "x.json")
    assert exit_code(results) == 1  # nothing was measured
    case = Case("x", 2, "all_reduce", 4)
    point = results.add(Point(case.name, "all_reduce", {**case.info(1e-3, 2), "wrong": 0}), 1e-3)
    assert exit_code(results) == 0
    point.info["wrong"] = 3
    assert exit_code(results) == 3
    assert any(line.split()[-1] == "3" for line in next(iter(tables(results.sorted()))).splitlines())


def test_the_legend_names_every_column_that_needs_a_word(tmp_path: Path) -> None:
    results = Results({}, tmp_path / "x.json")
    assert not legend(results.sorted())
    case, step = Case("x", 2, "all_reduce", 4), StepCase("x", 2, "small", "weak")
    results.add(Point(case.name, "all_reduce", {**case.info(1e-3, 2), "wrong": 0}), 1e-3)
    assert "exposed" not in legend(results.sorted())
    point = results.add(Point(step.name, "step", step.info(2)), 1e-3)
    parts = {"step": 1e-3, "compute": None, "exposed": None, "hidden": None, "of_possible": None}
    point.info.update({"parts": parts, "peak_kib": [1024]})
    said = re.split(r", | {2,}|\n", legend(results.sorted()))
    (collective,), (steps,) = tables(results.sorted()), step_tables(results.sorted())
    for name in {*collective.splitlines()[2].split(), *steps.splitlines()[1].split()} - {"count", "type", "redop"}:
        assert name in said
    assert "one launch    2 of 2 times have no spread" in legend(results.sorted())
    results.add(point, 2e-3)
    assert "one launch    1 of 2 times" in legend(results.sorted())


def test_interruption_keeps_measurements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ddpcheck_benchmarks.sweep import _Sweep

    sessions: list[int] = []
    real = _Sweep._launch

    def interrupted(*arguments: Any) -> None:
        if sessions:
            raise KeyboardInterrupt
        sessions.append(1)
        real(*arguments)

    monkeypatch.setattr(_Sweep, "_launch", interrupted)
    file = tmp_path / "results.json"
    options = [
        "-w",
        "2",
        "--sizes",
        "4B",
        "--collectives",
        "barrier",
        "--quick",
        "--steps",
        "none",
        "--json",
        str(file),
    ]
    done = CliRunner().invoke(command, ["ddpcheck_implementations.numpy_sockets:adapter", *options])
    assert done.exit_code == 130
    (entry,) = of_kind(file, "collective")
    assert entry["extra_info"]["launches"] == 1


def test_exposed_and_hidden_communication_follow_their_formulas() -> None:
    info = {
        "world_size": 2,
        "delays": (0.0, 0.0),
        "per_launch": {"compute": [0.8, 0.9], "comm_alone": [0.5, 0.5], "optimizer": [0.1, 0.1]},
    }
    parts = step_parts([1.0, 1.0], info)
    assert parts["exposed"] == pytest.approx(0.15)
    assert parts["hidden"] == pytest.approx(1 - 0.15 / 0.5)
    info["per_launch"] = {"compute": [None], "comm_alone": [None], "optimizer": [0.1]}
    assert step_parts([1.0], info)["hidden"] is None


def test_bucket_sizes_are_swept_where_there_is_the_option() -> None:
    every = list(step_cases("x", 2, ("small", "medium"), (1.0, 25.0)))
    assert [case.name for case in every if case.options] == [
        "step[x-p2-medium-weak-bucket_cap_mb=1]",
        "step[x-p2-medium-weak-bucket_cap_mb=25]",
    ]
    case = replace(next(case for case in every if case.options), options=(("pockets", 3.0),))
    results = Results({})
    with Session("ddpcheck_implementations.numpy_sockets:adapter", 2) as session:
        measure_step(session, case, Effort(), {}, results)
    assert results.skipped == ["x: it has no option pockets"]
    assert not results.problems


def collective(name: str, size: int, data: list[float], *, in_place: bool = False) -> Point:
    case = Case("x", 2, name, size // 4, in_place=in_place)  # type: ignore[arg-type]
    return Point(case.name, name, case.info(1e-3, 2), data)


def test_self_consistency_is_judged_by_launches_and_by_the_barrier() -> None:
    fast, slow = [1e-4 + i * 1e-6 for i in range(5)], [9e-4 + i * 1e-6 for i in range(5)]
    points = [
        collective("all_reduce", 4096, slow),
        collective("reduce_scatter", 4096, fast),
        collective("all_gather", 4096, fast),
        collective("barrier", 0, [1e-5]),
    ]
    found = {one["rule"]: one for one in judged(points)}
    broken = found["all_reduce <= reduce_scatter + all_gather"]
    assert broken["verdict"] == "violated"
    assert broken["p"] == pytest.approx(1 / 252)
    assert broken["left"] / broken["right"] == pytest.approx(9.02 / 2.04)
    assert found["all_gather <= all_reduce"]["verdict"] == "holds"
    points[-1] = collective("barrier", 0, [1e-2])  # a barrier takes longer than the excess
    assert {one["verdict"] for one in judged(points)} == {"holds"}
    short = [collective("all_reduce", 4096, slow[:2]), collective("broadcast", 4096, [2e-3, 2e-3])]
    (one,) = judged(short)
    assert one["verdict"] == "too few launches"


def test_a_large_message_should_not_be_slower_than_its_parts() -> None:
    values = [1e-3 + i * 1e-6 for i in range(5)]
    points = [collective("broadcast", 1024, [value / 100 for value in values]), collective("broadcast", 4096, values)]
    verdicts = {one["rule"]: one["verdict"] for one in judged(points)}
    assert verdicts == {
        "broadcast: no slower with fewer bytes": "holds",
        "broadcast: no slower than in parts": "violated",
    }


def test_pytest_benchmark_is_given_the_time_of_the_ranks(tmp_path: Path) -> None:
    pytest.importorskip("pytest_benchmark")
    file = tmp_path / "out.json"
    chosen = ["-k", "broadcast and 4B", "--ddp-adapter", "ddpcheck_implementations.numpy_sockets:adapter"]
    options = ["-p", "no:xdist", "-p", "no:cacheprovider", "-q", "--benchmark-json", str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--pyargs", "ddpcheck_benchmarks.test_speed", *chosen],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        # an xdist worker would not measure
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
        | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = json.loads(file.read_text())["benchmarks"]
    assert found["options"]["timer"].endswith("read")
    assert found["extra_info"]["wrong"] == 0
    assert found["stats"]["rounds"] == 10
    assert found["extra_info"]["algbw"] == pytest.approx(4 / found["stats"]["median"] / 1e9)


def test_expensive_points_are_measured_in_fewer_launches() -> None:
    now = 0.0
    allowance = Allowance(100.0, clock=lambda: now)
    assert allowance.grants("anything")
    for name, seconds, again in (("slow", 20.0, 4), ("quick", 1.0, 4), ("middling", 5.0, 4), ("once", 0.1, 0)):
        allowance.took(name, seconds, again)
    now = 40.0
    assert allowance.decide(fixed=10.0) == 10 + 4 + 20  # the other 80 do not fit into the remaining 60
    assert [name for name in ("slow", "quick", "middling", "once") if allowance.grants(name)] == ["quick", "middling"]
    assert allowance.decide(fixed=60.0) == 0  # ranks are not started without need
    now = 90.0  # the machine has become slower
    assert [name for name in ("slow", "quick", "middling", "once") if allowance.fits(name)] == [
        "quick",
        "middling",
        "once",
    ]


def test_a_sweep_ends_in_time_and_says_what_it_left_out(tmp_path: Path) -> None:
    words = ["ddpcheck_implementations.numpy_sockets:adapter", "-w", "1", "--collectives", "barrier", "--steps", "none"]
    left_out = "1 point: there was no time left (--minutes 1e-12): numpy_sockets on 1 rank: barrier (1)"
    file = tmp_path / "short.json"
    done = CliRunner().invoke(command, [*words, "--launches", "3", "--minutes", "1e-12", "--json", str(file)])
    assert "1 point and 1 start-up in 3 launches; no measurement begins after 1e-12 minutes" in done.output
    assert left_out in " ".join(done.output.split())
    assert "more for" not in done.output
    assert "further launches" not in done.output
    assert not json.loads(file.read_text())["benchmarks"]


@pytest.mark.parametrize(
    ("kept", "further", "skipped"),
    [
        (
            0,
            "no time for further launches: 2 points measured in one launch (--minutes 9)",
            "some of 3 launches, for 2 points: there was no time left (--minutes 9): "
            "numpy_sockets on 1 rank: barrier (1), broadcast (1)",
        ),
        (
            1,
            "about 7 s more for further launches of 1 point; no time for the other 1",
            "some of 3 launches, for 1 point: there was no time left (--minutes 9): "
            "numpy_sockets on 1 rank: broadcast (1)",
        ),
        (2, "about 7 s more for further launches of 2 points\n", None),
    ],
)
def test_a_sweep_says_which_launches_it_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int, further: str, skipped: str | None
) -> None:
    def decide(allowance: Allowance, fixed: float) -> float:
        allowance._repeated = set(sorted(allowance._costs)[:kept])
        return 7.0

    monkeypatch.setattr(Allowance, "decide", decide)
    words = ["ddpcheck_implementations.numpy_sockets:adapter", "-w", "1", "--sizes", "4B", "--steps", "none"]
    words += ["--collectives", "broadcast,barrier", "--launches", "3", "--minutes", "9"]
    file = tmp_path / "fewer.json"
    done = CliRunner().invoke(command, [*words, "--json", str(file)])
    assert done.exit_code == 0, done.output
    assert further in done.output
    assert json.loads(file.read_text())["ddpcheck"]["skipped"] == [skipped] * (skipped is not None)


def test_resnet_18_is_built_by_name() -> None:
    torch = pytest.importorskip("torch")
    from ddpcheck_implementations.resnet import ResNet18

    with torch.device("meta"):
        assert NAMED["resnet18"] == sum(parameter.numel() for parameter in ResNet18().parameters())
    case = StepCase("torch_ddp", 2, "resnet18", "weak")
    assert case.bytes == 4 * NAMED["resnet18"]
    assert case.job([case.steps(0, 1)]).operations[0].named == "resnet18"  # type: ignore[union-attr]
    assert StepCase("torch_ddp", 2, "small", "weak").steps(0, 1).named is None
