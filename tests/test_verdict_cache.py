"""The cache of verdicts: a passed check runs again only after a change, and only passes are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ddpcheck.cli.check import command

MINIMAL = (Path(__file__).parent / "minimal_adapter.py").read_text(encoding="utf-8")
UNCHANGED = "did not run again: they passed before, and nothing has changed since"


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "mine.py").write_text(MINIMAL, encoding="utf-8")
    return folder / "mine.py"


def check(adapter: Path, *more: str, name: str = "adapter") -> Result:
    place = adapter.parents[1]
    words = [f"{adapter}:{name}", "-w", "2", "-q", "--profile", "quick", "-c", "all_reduce_sums_exactly"]
    keeping = ["--cache", str(place / "cache"), "--json", str(place / "run.json"), "--failures", str(place / "failed")]
    return CliRunner().invoke(command, [*words, *keeping, *more])


def test_a_pass_runs_again_only_after_a_change(adapter: Path) -> None:
    first = check(adapter)
    assert first.exit_code == 0, first.output
    assert UNCHANGED not in first.output
    again = check(adapter)
    assert (again.exit_code, f"2 of them {UNCHANGED}" in again.output) == (0, True), again.output
    verdicts = json.loads((adapter.parents[1] / "run.json").read_text())["verdicts"]
    assert {verdict["reason"] for verdict in verdicts} == {"it passed before, and nothing has changed since (--cache)"}
    assert {verdict["status"] for verdict in verdicts} == {"passed"}
    assert UNCHANGED not in check(adapter, "--seed", "3").output
    (adapter.parent / "beside.py").write_text("x = 1\n", encoding="utf-8")
    assert UNCHANGED not in check(adapter).output


def test_a_change_of_an_editable_package_is_seen(
    adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source").mkdir()
    metadata = tmp_path / "site" / "my_ddp-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my_ddp\nVersion: 1.0\n", encoding="utf-8")
    origin = {"url": (tmp_path / "source").as_uri(), "dir_info": {"editable": True}}
    (metadata / "direct_url.json").write_text(json.dumps(origin), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path / "site")
    check(adapter)
    assert UNCHANGED in check(adapter).output
    (tmp_path / "source" / "my_ddp.py").write_text("x = 1\n", encoding="utf-8")
    assert UNCHANGED not in check(adapter).output


def test_another_check_asks_anew_whether_the_ranks_start(adapter: Path) -> None:
    check(adapter)
    more = check(adapter, "-c", "do_not_change_their_arguments")
    assert f"1 of them {UNCHANGED}" in more.output, more.output


def test_failures_are_not_kept(adapter: Path) -> None:
    outputs = [check(adapter, name="forgetful") for _ in range(2)]
    assert [done.exit_code for done in outputs] == [1, 1]
    assert "1 failed" in outputs[1].output


def test_damaged_cache_file_is_ignored(adapter: Path) -> None:
    check(adapter)
    for path in (adapter.parents[1] / "cache").iterdir():
        path.write_text('{"status": "passed"}', encoding="utf-8")
    done = check(adapter)
    assert (done.exit_code, UNCHANGED in done.output) == (0, False)


def test_a_cache_that_cannot_be_written_is_an_error(adapter: Path) -> None:
    (adapter.parents[1] / "cache").write_text("", encoding="utf-8")
    assert check(adapter).exit_code == 2


def test_results_are_written_even_if_the_cache_cannot_be(adapter: Path) -> None:
    (adapter.parents[1] / "file").write_text("", encoding="utf-8")
    done = check(adapter, "--cache", str(adapter.parents[1] / "file" / "cache"))
    assert done.exit_code == 2
    assert "2 passed" in done.output
    assert "file/cache" in done.stderr
    assert json.loads((adapter.parents[1] / "run.json").read_text())["verdicts"]
