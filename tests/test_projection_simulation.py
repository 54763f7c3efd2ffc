"""The simulation agrees with the formulas; errors without SimGrid, or past the deadline."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ddpcheck_benchmarks.projection.command import command
from ddpcheck_benchmarks.projection.formulas import FORMULAS, Link
from ddpcheck_benchmarks.projection.simulation import comparison, runner
from ddpcheck_benchmarks.projection.simulation.runner import Cluster, SimulationFailed, find_python, simulate
from ddpcheck_benchmarks.projection.simulation.schedules import SCHEDULES

LINK = Link(20e-6, 8 / 25e9, 1e-10)


@pytest.fixture
def simgrid() -> None:
    try:
        find_python()
    except SimulationFailed as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("simgrid")
@pytest.mark.parametrize("link", [LINK, Link(1e-3, 8 / 400e9)], ids=["cluster", "long and fast"])
def test_simulation_and_formulas_agree_where_both_assume_the_same(link: Link) -> None:
    compared = list(comparison.agreement(link, (2, 3, 8), (1024, 2**28)))
    assert len(compared) == 2 * 3 * 2
    assert all(abs(each.difference) < 0.01 for each in compared), compared


@pytest.fixture
def small_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "HOSTS_PER_LEAF", 4)
    monkeypatch.setattr(comparison, "LEAVES", 2)


@pytest.mark.usefixtures("simgrid", "small_tree")
def test_simulation_knows_what_formulas_do_not() -> None:
    found = {(each.algorithm, each.case): each.difference for each in comparison.departures(Link(20e-6, 8 / 25e9), 1e8)}
    # one link at half its bandwidth slows every step of a ring
    assert found["ring", "one host's link at half its bandwidth"] == pytest.approx(1, abs=0.1)
    assert found["ring", "one rank begins half an all-reduce later"] == pytest.approx(0.5, abs=0.05)
    # in order, a ring crosses each leaf's uplinks once; recursive doubling crosses them with all four ranks, in one of
    # three rounds
    assert found["ring", "fat tree 4:1, 2 leaves of 4, ranks in order"] < 0.05
    assert found["recursive doubling", "fat tree 4:1, 2 leaves of 4, ranks in order"] == pytest.approx(1, abs=0.1)
    assert found["ring", "fat tree 4:1, 2 leaves of 4, ranks anywhere"] == pytest.approx(1, abs=0.1)


@pytest.mark.usefixtures("simgrid")
def test_links_are_shared_fairly() -> None:
    """Two hosts of one leaf send over its one uplink at once: each gets half. Exchanges within a leaf are not
    slowed.
    """
    cluster = Cluster(4, Link(0.0, 1e-9), hosts_per_leaf=2, uplinks=1)
    (seconds,) = simulate(cluster, SCHEDULES["recursive doubling"](4), [1e6])
    assert seconds == pytest.approx(1e-3 + 2e-3, rel=1e-6)


@pytest.mark.usefixtures("simgrid")
def test_a_path_over_the_spine_has_four_links() -> None:
    cluster = Cluster(2, LINK, hosts_per_leaf=1, uplinks=1)
    (seconds,) = simulate(cluster, SCHEDULES["recursive doubling"](2), [1.0])
    assert seconds == pytest.approx(2 * LINK.alpha, rel=1e-3)


def test_cluster_and_schedule_must_fit() -> None:
    with pytest.raises(ValueError, match="4 ranks on 2 hosts"):
        simulate(Cluster(2, LINK), SCHEDULES["ring"](4), [1.0])


def test_without_simgrid_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> str:
        raise SimulationFailed(f"no SimGrid; {runner.INSTALL}")

    monkeypatch.setattr(runner, "find_python", absent)
    result = CliRunner().invoke(command, ["--link", "25GbE:20us", "--ranks", "8", "--simulate"])
    assert result.exit_code == 1
    assert "apt-get install python3-simgrid" in result.output
    assert "or leave out --simulate" in result.output


def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    file = tmp_path / "program.py"
    file.write_text(text)
    monkeypatch.setattr(runner, "PROGRAM", file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("while True: pass", "took more than 0.5 s; simulate fewer ranks"),
        ("raise SystemExit('no such link')", "exit status 1: no such link"),
        ("print('nonsense')", "which is not an answer"),
        ("print('{}')", "which is not an answer"),
    ],
)
def test_a_simulation_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    program(tmp_path, monkeypatch, text)
    deadline = 0.5 if "while" in text else 60
    with pytest.raises(SimulationFailed, match=re.escape(message)):
        simulate(Cluster(2, LINK), SCHEDULES["ring"](2), [1.0], deadline=deadline, python=sys.executable)


def test_an_interpreter_that_is_absent() -> None:
    with pytest.raises(SimulationFailed, match="cannot be started"):
        simulate(Cluster(2, LINK), SCHEDULES["ring"](2), [1.0], python="/absent/python3")


@pytest.mark.usefixtures("simgrid", "small_tree")
def test_the_command_prints_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddpcheck_benchmarks.projection.command._SIMULATED_RANKS", (2, 4))
    info = {"kind": "collective", "adapter": "made", "collective": "all_reduce", "cores": 2}
    times = {
        (p, size): (p / 2) * FORMULAS["all_reduce"]["ring"](p, size).seconds(Link(1e-5, 1e-9))
        for p in (2, 4, 8)
        for size in (64, 4096, 2**20)
    }
    benchmarks = [
        {"extra_info": {**info, "world_size": p, "bytes": size}, "stats": {"data": [seconds, seconds]}}
        for (p, size), seconds in times.items()
    ]
    file = tmp_path / "bench.json"
    file.write_text(json.dumps({"benchmarks": benchmarks}))
    words = ["--from", str(file), "--link", "25GbE:20us", "--ranks", "8", "--simulate"]
    result = CliRunner().invoke(command, words)
    assert result.exit_code == 0, result.output
    assert "Largest difference 0.0 %: they agree." in result.output
    assert "fat tree 4:1" in result.output
    assert re.search(r"ring +2 +1 MiB +1\.07 ms +1\.07 ms +1\.07 ms +[+-]0 %", result.output)
    assert not re.search(r"ring +4 .* %$", result.output.split("SimGrid and the measurements")[1], re.MULTILINE)


def test_every_schedule_has_a_formula() -> None:
    assert set(SCHEDULES) <= set(FORMULAS["all_reduce"])
