"""The report is made only from result files, equal files give equal reports, and the most important part is first."""

from __future__ import annotations

import errno
import json
import math
import os
import statistics
import xml.etree.ElementTree as ET
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from ddpcheck.storage.files import UnreadableFile, UnwritableFile

pytest.importorskip("matplotlib", reason="pip install ddpcheck[report]")

from fuzz import measured
from matplotlib.figure import Figure as Canvas

from ddpcheck_benchmarks.projection.command import command as project
from ddpcheck_reports import resource_section
from ddpcheck_reports.command import command  # figures need matplotlib, see importorskip
from ddpcheck_reports.document import SUMMARY_BYTES, Code, Figure, Heading, Table, Text, page, plain, summary
from ddpcheck_reports.noise_section import against_itself, smallest_effect
from ddpcheck_reports.number_formatting import bars, share_with_spread, significant, with_spread
from ddpcheck_reports.resource_section import trace_events
from ddpcheck_reports.result_files import Entry, read

RUN = {
    **measured.RUN,
    "settings": {"command": "ddpcheck bench a b --json x.json"},
    "skipped": ["c: it has no option bucket_cap_mb"],
    "consistency": [
        {
            "rule": "broadcast <= all_reduce", "adapter": "a", "world_size": 2, "bytes": 4096, "left": 3e-4, "right": 1e-4,
            "p": 0.004, "verdict": "violated",
        }
    ],
}  # fmt: skip
WITHIN = {
    "p25": 1e-3, "p95": 4e-3, "worst": 9e-3, "cv": 0.1, "spikes": 1, "iterations": 10, "samples": 30, "global_seconds": 1e-3,
    "cores": 2,
}  # fmt: skip


def entry(name: str, data: list[float], **info: Any) -> dict[str, Any]:
    ranks = [{"median": data[0], "slowest": 0.9 if rank else 0.1} for rank in range(info["world_size"])]
    return {"name": name, "extra_info": {**WITHIN, "ranks": ranks, **info}, "stats": {"data": data}}


def collective(adapter: str, ranks: int, size: int, seconds: float, wrong: int = 0) -> dict[str, Any]:
    rate = None if ranks == 1 else size / seconds / 1e9
    return entry(
        f"all_reduce[{adapter}-p{ranks}-{size}B-float32]", [seconds, seconds * 1.1, seconds * 1.2], kind="collective",
        adapter=adapter, collective="all_reduce", world_size=ranks, bytes=size, count=size // 4, dtype="float32", redop="sum",
        in_place=False, algbw=rate, busbw=rate, wrong=wrong,
    )  # fmt: skip


def step(adapter: str, ranks: int, seconds: float, scaling: str = "weak", **options: float) -> dict[str, Any]:
    parts = {
        "step": seconds,
        "compute": 0.8 * seconds,
        "exposed": 0.2 * seconds,
        "hidden": 0.5,
        "optimizer": 0.1 * seconds,
    }
    told = "".join(f"-{name}={value:g}" for name, value in options.items())
    spans = [
        ["backward", 0.0, 0.6 * seconds],
        ["all_reduce 0", 0.3 * seconds, 0.9 * seconds],
        ["optimizer", 0.9 * seconds, seconds],
    ]
    return entry(
        f"step[{adapter}-p{ranks}-small-{scaling}{told}]", [seconds] * 3, kind="step", adapter=adapter, world_size=ranks,
        model="small", scaling=scaling, options=options, parameters=669706, bytes=2678824, batch=64, global_batch=64 * ranks,
        cpu_seconds=[seconds] * ranks, peak_kib=[50000] * ranks, counts=None, parts=parts, timeline=[spans] * ranks,
    )  # fmt: skip


def everything() -> list[dict[str, Any]]:
    found = [
        collective(adapter, ranks, size, ranks * (1e-5 + size * 1e-9))
        for adapter in "ab"
        for ranks in (1, 2, 4)
        for size in (4, 4096, 1 << 20)
    ]
    found += [step(adapter, ranks, 0.01 * (1 + 0.25 * (ranks - 1))) for adapter in "ab" for ranks in (1, 2, 4)]
    found += [
        step("a", 2, 0.008, "strong"),
        step("a", 2, 0.013, bucket_cap_mb=1.0),
        step("a", 2, 0.012, bucket_cap_mb=25.0),
    ]
    found.append(entry("startup[a-p2]", [0.5, 0.6], kind="startup", adapter="a", world_size=2))
    return found


def write(folder: Path, entries: list[dict[str, Any]], name: str = "x.json", **run: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(
        json.dumps({"benchmarks": entries, "datetime": "", "commit_info": {"id": "0" * 40}, "ddpcheck": {**RUN, **run}})
    )
    return file


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a report with all sections."""
    monkeypatch.chdir(tmp_path)
    write(Path(), everything())
    done = CliRunner().invoke(command, ["x.json", "-o", "out/scaling.md"])
    assert done.exit_code == 0, done.output
    return tmp_path / "out"


def test_three_targets_are_written_and_every_figure_is_there(made: Path) -> None:
    text = (made / "scaling.md").read_text()
    figures = {line.rpartition("(")[2].rstrip(")") for line in text.splitlines() if line.startswith("![")}
    assert {
        "plots/efficiency.svg",
        "plots/buckets.svg",
        "plots/timeline-a.svg",
        "plots/all-reduce-busbw-p2.svg",
    } <= figures
    for figure in figures:
        assert ET.parse(made / figure).getroot().tag.endswith("svg")
    short = (made / "scaling-summary.md").read_text()
    assert "![" not in short
    assert f"{len(everything()) - 1} points and 1 start-up of a" in short
    assert len(short.encode()) <= SUMMARY_BYTES
    assert "Weak-scaling efficiency" in short  # the figure's sentence, and its content as text
    assert "█" in (made / "scaling.txt").read_text()


def test_the_verdict_comes_first(made: Path) -> None:
    lines = (made / "scaling.md").read_text().splitlines()
    assert lines[2] == "> [!NOTE]"
    assert "exact results" in lines[3]


def test_efficiency_is_omitted_if_ranks_share_cores(made: Path) -> None:
    lines = (made / "scaling.md").read_text().splitlines()
    table = lines[lines.index("weak scaling: the batch of each rank is constant") :]
    weak = [line for line in table if line.startswith("| a ") and "%" in line and "[10.0, 10.0]" in line]
    assert "100 %" in weak[0]
    two = next(line for line in lines if line.startswith("| a ") and "12.5 [" in line)
    assert "80 % [80, 80]" in two
    assert "oversubscribed" in "\n".join(lines)
    assert not any("17.5 [" in line and "%" in line for line in lines)  # four ranks on two cores
    strong = next(line for line in lines if line.startswith("| a ") and "8.00 [" in line)
    assert "62 %" in strong


def test_figures_of_one_launch_say_so(tmp_path: Path) -> None:
    entries = [step("a", ranks, 0.01 * ranks) for ranks in (1, 2)] + [collective("a", 2, 4, 1e-5)]
    for each in entries:
        each["stats"]["data"] = each["stats"]["data"][:1]
    done = CliRunner().invoke(command, [str(write(tmp_path, entries)), "-o", str(tmp_path / "r.md")])
    assert done.exit_code == 0, done.output
    glance, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (tmp_path / "r.md").read_text().splitlines()
        if line.startswith("| a ") and "%" in line
    )
    assert glance[1:] == ["10.0 (once)", "0.000400 (once)", "20.0 (once)", "10.0 (once)", "50 % (once)"]
    assert rows[0][6] == "50 % (once)"
    assert "2 ranks, 50 % (once)." in (tmp_path / "r.md").read_text()


def test_noise_is_that_of_the_run_itself() -> None:
    launches = [1.0, 1.1, 1.0, 1.1, 1.0, 1.1]
    steady, noisy = (Entry("x", {}, tuple(data)) for data in ([1.0] * 6, launches))
    assert against_itself([steady]) == "1.000 [1.00, 1.00]"
    assert against_itself([steady, noisy, noisy]).startswith("0.909 ")
    assert smallest_effect(steady) == 0
    # two means of 6 differ by 2.8 standard errors of a median: 2.8 x 1.2533 x sqrt(2 / 6) x s
    deviation = statistics.stdev([0, math.log(1.1)] * 3)
    assert smallest_effect(noisy) == pytest.approx(math.exp(2.8 * 1.2533 * deviation * math.sqrt(1 / 3)) - 1)


def test_the_distribution_of_steps_comes_from_the_archive(tmp_path: Path) -> None:
    name = step("a", 2, 0.01)["name"]
    times = np.array([[0.01, 0.02, 0.01], [0.01, 0.01, 0.05]])  # of two ranks
    np.savez_compressed(tmp_path / "x.npz", **{f"{name}/0/begin": np.zeros((2, 3)), f"{name}/0/end": times})
    file = write(tmp_path, everything(), archive="x.npz")
    assert read([file]).samples == {name: [0.01, 0.02, 0.05]}
    done = CliRunner().invoke(command, [str(file), "-o", str(tmp_path / "r.md")])
    assert done.exit_code == 0, done.output
    text = (tmp_path / "r.md").read_text()
    assert (tmp_path / "plots" / "step-distribution.svg").exists()
    assert "p99 50.0 ms beside a median of 20.0 ms" in text


def test_emulated_hosts_have_a_section_of_their_own(tmp_path: Path) -> None:
    entries = []
    for ranks, seconds, share in ((1, 0.5, None), (8, 0.625, 0.83)):
        one = step("a", ranks, seconds)
        one["name"] += "-1Gbit"
        info = one["extra_info"]
        info["parts"] |= {"comm_alone": 0.3, "of_possible": share}
        entries.append(
            {**one, "extra_info": {**info, "link": "1Gbit", "delays": (0.1, 0.3), "wire_bytes": [4e6] * ranks}}
        )
    done = CliRunner().invoke(command, [str(write(tmp_path, entries)), "-o", str(tmp_path / "r.md")])
    assert done.exit_code == 0, done.output
    text = (tmp_path / "r.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| a ") and "83 %" in line)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1] == "8"
    assert cells[5:8] == ["83 %", "80 % [80, 80]", "4.00"]
    assert cells[8].endswith("(too many)")  # 8 ranks work all the time on 2 cores
    assert "at 8 ranks 80 % with a" in text
    assert "## Training steps" not in text
    assert "says anything about a cluster" not in text


def test_equal_files_give_equal_reports(made: Path) -> None:
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    assert CliRunner().invoke(command, ["x.json", "-o", "out/scaling.md"]).exit_code == 0
    assert {path: path.read_bytes() for path in made.rglob("*") if path.is_file()} == before


def test_a_figure_that_breaks_off_leaves_the_old_one(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}

    def broken_off(canvas: Canvas, place: Any, **options: Any) -> None:
        with place.open("wb") if isinstance(place, Path) else nullcontext(place) as file:
            file.write(b"<svg")
        raise MemoryError

    monkeypatch.setattr(Canvas, "savefig", broken_off)
    assert isinstance(CliRunner().invoke(command, ["x.json", "-o", "out/scaling.md"]).exception, MemoryError)
    assert {path: path.read_bytes() for path in made.rglob("*") if path.is_file()} == before


def test_a_timeline_that_breaks_off_leaves_the_old_one(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made / "plots/timeline-a.json"
    before = path.read_bytes()
    moved = Path.replace

    def broken_off(draft: Path, place: Path) -> Path:
        if place.name == path.name:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return moved(draft, place)

    monkeypatch.setattr(Path, "replace", broken_off)
    monkeypatch.setattr(resource_section, "trace_events", lambda ranks: {"traceEvents": ["other"]})
    assert isinstance(CliRunner().invoke(command, ["x.json", "-o", "out/scaling.md"]).exception, UnwritableFile)
    assert path.read_bytes() == before
    assert not list(made.rglob("*.part"))


def test_perfetto_can_read_the_timeline(made: Path) -> None:
    data = json.loads((made / "plots/timeline-a.json").read_text())
    spans = [event for event in data["traceEvents"] if event["ph"] == "X"]
    assert {(event["name"], event["pid"], event["tid"]) for event in spans} == {
        (name, rank, lane) for rank in (0, 1) for name, lane in (("backward", 0), ("all_reduce 0", 1), ("optimizer", 0))
    }
    assert all(event["dur"] > 0 for event in spans)
    assert trace_events([])["traceEvents"] == []


def test_violated_rules_caveats_and_command_are_shown(made: Path) -> None:
    text = (made / "scaling.md").read_text()
    assert "broadcast ≤ all_reduce" in text
    assert "x 3.00" in text
    assert "Not measured: c: it has no option bucket_cap_mb." in text
    assert "4 ranks are more than the 2 cores" in text
    assert "ddpcheck report x.json -o out/scaling.md" in text


def test_report_of_steps_alone_praises_no_collective_and_links_nothing(tmp_path: Path) -> None:
    file = write(tmp_path, [step("a", 1, 1e-3), step("a", 2, 2e-3)])
    assert CliRunner().invoke(command, [str(file), "-o", str(tmp_path / "r.md")]).exit_code == 0
    text = (tmp_path / "r.md").read_text()
    assert "**No collective was measured**" in text
    assert "exact results" not in text
    assert "conformance.md" not in text


def test_wrong_elements_are_the_verdict(tmp_path: Path) -> None:
    file = write(tmp_path, [collective("a", 2, 4096, 1e-3, wrong=7)])
    assert CliRunner().invoke(command, [str(file), "-o", str(tmp_path / "r.md")]).exit_code == 0
    lines = (tmp_path / "r.md").read_text().splitlines()
    assert lines[2] == "> [!CAUTION]"
    assert "(7)" in lines[3]


def test_a_projection_is_shown_if_there_is_one(tmp_path: Path) -> None:
    file = write(tmp_path, [collective("a", 2, 4096, 1e-3)])
    other = tmp_path / "projection.json"
    asked = ["--link", "25GbE:20us", "--ranks", "8..64", "--json", str(other)]
    assert CliRunner().invoke(project, asked).exit_code == 0
    assert CliRunner().invoke(command, [str(file), str(other), "-o", str(tmp_path / "r.md")]).exit_code == 0
    told = (tmp_path / "r.md").read_text()
    rows = [line.strip("| ").split("|") for line in told.splitlines() if line.startswith("| link alone, ring")]
    ring = json.loads(other.read_text())["projections"][0]["rows"]
    assert [int(row[1]) for row in rows] == [8, 32, 64]
    assert [float(row[3]) for row in rows] == pytest.approx(
        [ring[place]["all_reduce"] * 1e3 for place in (0, 2, 3)], rel=0.01
    )
    assert "- Nothing was measured: times of the link alone have no interval" in told


@pytest.mark.parametrize("text", ["", "[]", '{"benchmarks": []}'])
def test_what_is_no_result_file_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UnreadableFile, match=r"x\.json"):
        read([tmp_path / "x.json"])


def test_two_measurements_of_one_thing_are_not_mixed(tmp_path: Path) -> None:
    one, two = (write(tmp_path, [collective("a", 2, 4, 1e-3)], name) for name in ("x.json", "y.json"))
    with pytest.raises(UnreadableFile, match="two files"):
        read([one, two])


def test_blocks_take_three_forms() -> None:
    blocks = [
        Heading("T", 1),
        Text("- `a`"),
        Table(("x", "n"), [("a|b", "1")]),
        Figure("p.svg", "It rises.", "▏"),
        Code("run"),
    ]
    assert page(blocks).splitlines()[4:8] == ["| x    |   n |", "| ---- | --: |", "| a\\|b |   1 |", ""]
    assert "![It rises.](p.svg)" in page(blocks)
    assert "```text\nIt rises.\n\n▏\n```" in summary(blocks)
    assert "- a\n" in plain(blocks)
    long = summary([Text("x" * 1000)] * 100)
    assert len(long.encode()) <= SUMMARY_BYTES
    assert long.endswith("it is in the full report.\n")


def test_numbers_have_three_digits_and_their_spread() -> None:
    values = [significant(value) for value in (0.0012345, 1.2345, 123.45, 123456.0, 0, None)]
    assert values == ["0.00123", "1.23", "123", "123456", "0", "-"]
    assert with_spread([0.5], 1e3) == "500 (once)"
    assert share_with_spread([1.0], [2.0, 4.0]) == "33 % (once)"
    assert share_with_spread([1.0, 2.0, 3.0], [4.0, 8.0], 0.5) == "17 % [6, 38]"
    assert with_spread([1.0, 2.0, 3.0]) == "2.00 [1.00, 3.00]"
    assert with_spread([float(i) for i in range(1, 21)]) == "10.5 [5.00, 16.0]"
    assert bars([("a", 1.0), ("bb", 2.0)], "ms", 4).splitlines()[1] == "bb  ████  2.00 ms"
