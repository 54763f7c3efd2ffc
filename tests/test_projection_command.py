"""The command `ddpcheck project`: links and sizes, result files, tables, and error messages."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ddpcheck_benchmarks.projection.command import command
from ddpcheck_benchmarks.projection.formulas import ring_all_reduce
from ddpcheck_benchmarks.projection.quantities import (
    parse_link,
    parse_ranks,
    parse_seconds,
    size_text,
    time_text,
)

WORLDS = (2, 3, 4, 6, 8)
SIZES = tuple(4**i for i in range(3, 12))
OVERHEAD, ALPHA, BETA = 2e-5, 1.5e-5, 1.2e-9


def project(*words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


def ring(p: int, size: int) -> float:
    cost = ring_all_reduce(p, size)
    return OVERHEAD + cost.contention(4) * (cost.steps * ALPHA + cost.moved * BETA)


def benchmark(p: int, size: int, seconds: list[float], **extra: object) -> dict[str, Any]:
    info = {"kind": "collective", "adapter": "made", "collective": "all_reduce", "in_place": False, "cores": 4}
    return {
        "name": f"p{p}-{size}",
        "extra_info": {**info, "world_size": p, "bytes": size, **extra},
        "stats": {"data": seconds},
    }


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a result file: times of a ring, five launches that differ by some percent, multiplied by a factor."""

    def written(factor: Callable[[int, int], float] = lambda p, size: 1.0, *others: dict[str, Any]) -> Path:
        file = tmp_path / "bench.json"
        made = [
            benchmark(p, size, [factor(p, size) * ring(p, size) * (1 + 0.02 * launch) for launch in range(5)])
            for p, size in itertools.product(WORLDS, SIZES)
        ]
        file.write_text(json.dumps({"benchmarks": [*made, *others]}))
        return file

    return written


# --------------------------------------------------------------------------------------------------------------- parsers


@pytest.mark.parametrize(
    ("text", "bytes_a_second", "latency"),
    [
        ("25GbE:20us", 3.125e9, 20e-6),
        ("100Gbit/s:5us", 12.5e9, 5e-6),
        ("400Gbps:2µs", 50e9, 2e-6),
        ("3GB/s:0.1ms", 3e9, 1e-4),
        ("1.5 GiB/s : 500ns", 1.5 * 2**30, 5e-7),
    ],
)
def test_links(text: str, bytes_a_second: float, latency: float) -> None:
    link = parse_link(text)
    assert (1 / link.beta, link.alpha) == pytest.approx((bytes_a_second, latency))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("25GbE", "has no latency: write RATE:LATENCY, for example 25GbE:20us"),
        ("fast:20us", "write bits as 25GbE"),
        ("25G:20us", "write bits as 25GbE"),
        ("25GbE:20", "write a number with ns, us, ms or s"),
        ("0GbE:20us", "give a rate above 0"),
        ("2.5.1GbE:20us", "'2.5.1' .* is not a number"),
        ("25GbE:-1us", "is not a time"),
    ],
)
def test_no_links(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_link(text)


def test_times_and_ranks() -> None:
    assert parse_seconds("1.5ms") == 1.5e-3
    assert parse_ranks("8..64") == (8, 16, 32, 64)
    assert parse_ranks("8..100") == (8, 16, 32, 64, 100)
    assert parse_ranks("64,2,8") == (2, 8, 64)
    assert (size_text(4), size_text(65536), size_text(1.5 * 2**20)) == ("4 B", "64 KiB", "1.5 MiB")
    assert (time_text(0.0999999), time_text(1.234e-5), time_text(12.34), time_text(0)) == (
        "100 ms",
        "12.3 µs",
        "12.3 s",
        "0 ns",
    )


# -------------------------------------------------------------------------------------------------------------- the command


def test_usage_errors(tmp_path: Path, write: Callable[..., Path]) -> None:
    broken, empty = tmp_path / "broken.json", tmp_path / "empty.json"
    broken.write_text("{")
    empty.write_text('{"benchmarks": []}')
    damaged = tmp_path / "damaged.json"
    damaged.write_text(json.dumps({"benchmarks": [benchmark(2, 4, [0.0])]}))
    for words, message in (
        ([], "nothing to project from: give --from FILE, --link 25GbE:20us"),
        (["--link", "25GbE"], "has no latency"),
        (["--link", "25GbE:20us", "--ranks", "1..8"], "write 8..4096"),
        (["--link", "25GbE:20us", "--ranks", "many"], "write 8..4096"),
        (["--link", "25GbE:20us", "--ranks", "64..8"], "write 8..4096"),
        (["--link", "25GbE:20us", "--model-bytes", "100Mbit"], "is not a size: write bytes above 0"),
        (["--link", "25GbE:20us", "--compute", "0s"], "--compute should be more than 0"),
        (["--link", "25GbE:20us", "--algorithm", "rnig"], "did you mean ring"),
        (["--from", tmp_path / "absent.json"], "cannot be read.*ddpcheck bench"),
        (["--from", broken], "cannot be read.*ddpcheck bench"),
        (["--from", empty], "no collective in .*ddpcheck bench"),
        (["--from", damaged], "p2-4 is damaged.*more than 0"),
    ):
        result = project(*words)
        assert result.exit_code == 2, (words, result.output)
        assert re.search(message, " ".join(result.output.split())), (words, result.output)


def test_link_alone_says_that_nothing_was_measured() -> None:
    result = project("--link", "25GbE:20us", "--ranks", "8,1024")
    assert result.exit_code == 0, result.output
    # 2 (8-1) 20 µs + 2 7/8 100 MB / (3.125 GB/s)
    assert re.search(r"link alone, ring +8 .* 56\.3 ms", result.output)
    assert "Nothing was measured" in result.output
    assert "not measured: 20 µs a message, 25 Gbit/s" in " ".join(result.output.split())


def test_projection_from_results(tmp_path: Path, write: Callable[..., Path]) -> None:
    file, out, page = write(), tmp_path / "p.json", tmp_path / "p.md"
    result = project("--from", file, "--link", "25GbE:20us", "--ranks", "8,64", "--json", out, "--markdown", page)
    assert result.exit_code == 0, result.output
    record = json.loads(out.read_text())
    assert record["schema"] == "ddpcheck.projection/1"
    (found,) = record["fits"]
    assert [(each["algorithm"], each["upto"]) for each in found["segments"]] == [("ring", None)]
    assert found["segments"][0]["alpha"] == pytest.approx(ALPHA, rel=0.1)
    measured, *ideal = record["projections"]
    (row,) = [row for row in measured["rows"] if row["ranks"] == 64]
    # software as measured, at the low quartile of launches, on a core for each rank, and the link
    cost = ring_all_reduce(64, 1e8)
    software = 1.02 * (OVERHEAD + cost.steps * ALPHA + cost.moved * BETA)
    assert row["all_reduce"] == pytest.approx(software + cost.steps * 20e-6 + cost.moved * 8 / 25e9, rel=0.05)
    low, high = row["all_reduce_interval"]
    assert low <= row["all_reduce"] <= high < 2 * low
    assert row["step_interval"][0] <= row["step"]["total"] <= row["step_interval"][1]
    assert (row["times_ranks"], row["times_bytes"]) == pytest.approx((8, 1e8 / SIZES[-1]))
    assert row["median_error"] < 0.3
    assert {each["name"]: each["median"] for each in found["scenarios"]}["fewer ranks → more ranks"] < 0.05
    assert row["efficiency"] == pytest.approx(0.1 / row["step"]["total"])
    assert [each["source"] for each in ideal] == ["link alone, ring", "link alone, best algorithm by size"]
    text = page.read_text()
    assert "| made, software as measured + link" in text
    assert "held-out error" in text
    assert "made, all_reduce: 64 ranks are ×8 the largest measured (8)" in text
    assert "More ranks than cores were measured (8 on 4)" in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines if "software as measured" in line}) == 3  # one width in each table


def test_a_model_that_does_not_hold_shows_beside_the_projection(tmp_path: Path, write: Callable[..., Path]) -> None:
    """From six ranks on all calls take four times as long: the error shows it, and the interval includes it."""
    out = tmp_path / "p.json"
    result = project(
        "--from", write(lambda p, _: 4.0 if p > 4 else 1.0), "--ranks", "64", "--model-bytes", "1MB", "--json", out
    )
    assert result.exit_code == 0, result.output
    (row,) = json.loads(out.read_text())["projections"][0]["rows"]
    assert row["median_error"] > 0.5
    low, high = row["all_reduce_interval"]
    assert low <= row["all_reduce"] <= high
    assert high > 2 * low


def test_an_answer_comes_first(tmp_path: Path, write: Callable[..., Path]) -> None:
    page = tmp_path / "p.md"
    words = ("--link", "25GbE:20us", "--ranks", "8..1024", "--compute", "100ms", "--markdown", page)
    result = project("--from", write(), *words)
    assert result.exit_code == 0, result.output
    first, *lines = result.output.splitlines()
    assert first == "At 1024 ranks: step with 95.4 MiB of gradients"
    assert re.search(r"^made, software as measured \+ link +100 ms .* at \d+ ranks$", lines[1]), lines[1]
    assert re.search(r"^link alone, best .* at none$", lines[3]), lines[3]
    assert lines[4] == "1024 ranks are ×128 the measured number: a scenario, not a prediction."
    assert page.read_text().startswith("# Projection\n\n## At 1024 ranks")


def test_few_errors_give_no_interval(tmp_path: Path) -> None:
    """One held-out error would make an interval of one point, beside the estimate."""
    file, out = tmp_path / "few.json", tmp_path / "p.json"
    seconds = dict(zip((4, 1024, 2**15, 2**20, 2**24), (2e-4, 1e-3, 1e-3, 2e-2, 4e-2), strict=True))
    file.write_text(json.dumps({"benchmarks": [benchmark(2, size, [took]) for size, took in seconds.items()]}))
    result = project("--from", file, "--ranks", "8", "--algorithm", "ring", "--json", out)
    assert result.exit_code == 0, result.output
    (row,) = json.loads(out.read_text())["projections"][0]["rows"]
    assert (row["held_out"], row["all_reduce_interval"], row["step_interval"]) == (1, None, None)
    assert result.output.count("none: 1 of 9") == 3
    assert "An interval needs 9 errors that held-out predictions of this kind have" in result.output


def test_step_times_of_one_rank_give_compute_and_lateness(tmp_path: Path, write: Callable[..., Path]) -> None:
    steps = benchmark(1, 10**6, [0.2, 0.2, 0.2, 0.6], kind="step", model="large")
    out = tmp_path / "p.json"
    result = project("--from", write(lambda *_: 1.0, steps), "--ranks", "64", "--model-bytes", "1MB", "--json", out)
    assert result.exit_code == 0, result.output
    (row,) = json.loads(out.read_text())["projections"][0]["rows"]
    assert row["step"]["jitter"] == pytest.approx(0.3, rel=1e-3)  # the slowest of 64 takes 0.6, the mean is 0.3
    assert row["step"]["total"] > 0.6
    assert re.search(r"^made, as measured, .*? 300 ms ", result.output, re.MULTILINE), "the measured compute"
    assert "comes from 4 step times of one rank: too small for 64 ranks" in " ".join(result.output.split())


def test_compute_and_gradients_are_those_of_the_largest_measured_model(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    models = {"medium": (8 * 2**20, 0.2), "small": (2**20, 0.1)}
    steps = [benchmark(1, size, [took], kind="step", model=name) for name, (size, took) in models.items()]
    other = benchmark(1, 2**20, [0.1], kind="step", model="small", adapter="alone")
    out = tmp_path / "p.json"
    result = project("--from", write(lambda *_: 1.0, *steps, other), "--ranks", "64", "--json", out)
    assert result.exit_code == 0, result.output
    record = json.loads(out.read_text())
    assert record["question"]["model_bytes"] == 8 * 2**20
    assert sum(record["question"]["compute"]["samples"]) == pytest.approx(0.2)
    assert record["assumptions"][0] == (
        "Compute and gradients are those of the model medium, the largest that one rank was measured with."
    )
    assert "alone: no collective was measured" in result.output


def test_indistinguishable_algorithms_show_their_extremes(tmp_path: Path) -> None:
    file = tmp_path / "two.json"
    file.write_text(json.dumps({"benchmarks": [benchmark(2, size, [ring(2, size)]) for size in SIZES]}))
    out = tmp_path / "p.json"
    result = project("--from", file, "--ranks", "64", "--json", out)
    assert result.exit_code == 0, result.output
    times = {each["source"]: each["rows"][0]["all_reduce"] for each in json.loads(out.read_text())["projections"]}
    assert len(times) > 3
    table = result.output.partition("Projected: all-reduce")[2].partition("Projected: step")[0]
    shown = re.findall(r"^(made, if .*?) +64 ", table, re.MULTILINE)
    assert [times[source] for source in shown] == [min(times.values()), max(times.values())]
    assert "any: not told apart" in result.output
    assert "One time each" in result.output
    known = project("--from", file, "--ranks", "64", "--algorithm", "ring")
    assert "made, if " not in known.output


def test_collectives_without_a_formula_are_left_out(write: Callable[..., Path]) -> None:
    file = write(lambda *_: 1.0, benchmark(2, 64, [1.0], collective="all_to_all"))
    result = project("--from", file, "--ranks", "8")
    assert result.exit_code == 0, result.output
    assert "made, all_to_all: there is no formula for it" in result.output
