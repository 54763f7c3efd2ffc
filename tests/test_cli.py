"""The command line: outputs, written files and exit statuses."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import ddpcheck_properties
from ddpcheck import Adapter, Job, mlp
from ddpcheck.cli import COMMANDS, faults, main
from ddpcheck.cli.log_lines import LogLines
from ddpcheck.job import Backward, DataSpec
from ddpcheck.running.adapter_lookup import how_to_install
from ddpcheck.running.check_runner import Settings
from ddpcheck.running.fault_runs import run_fault
from ddpcheck.running.plan import installed_checks
from ddpcheck.running.profiles import PROFILES, profile_named
from ddpcheck.storage.failing_jobs import Failure
from ddpcheck.storage.results import Results
from ddpcheck_implementations.faulty import unusual

MINIMAL = Path(__file__).parent / "minimal_adapter.py"
STORED = Path(__file__).parent / "stored"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ddpcheck(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def check(*words: str) -> Result:
    return ddpcheck("check", *words, "--profile", "quick", "-c", "all_reduce")


def test_help_names_every_command() -> None:
    shown = ddpcheck("--help")
    assert shown.exit_code == 0
    assert all(re.search(rf"^  {name} ", shown.output, re.MULTILINE) for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    shown = ddpcheck(name, "--help")
    assert shown.exit_code == 0, shown.output
    assert "Usage:" in shown.output


@pytest.mark.usefixtures("here")
def test_quiet_shows_failures_and_a_line() -> None:
    result = check(f"{MINIMAL}:adapter", "-w", "1-2", "-q")
    assert result.exit_code == 0, result.output
    assert re.fullmatch(r"\d+ passed, \d+ skipped; \d+ Jobs in [\d.]+ s\n", result.stdout)
    result = check(f"{MINIMAL}:forgetful", "-w", "2", "-q")
    assert result.exit_code == 1
    assert result.stdout.startswith("✗ forgetful, 2 ranks: check_all_reduce_sums_exactly (collectives)\n")
    assert result.output.count("[not-reduced]") == 1
    assert "check \\ ranks" not in result.output


def test_quiet_run_tells_progress_on_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddpcheck.cli.progress._SECONDS_BETWEEN_QUIET_LINES", 0.0)
    result = check(f"{MINIMAL}:adapter", "-w", "1", "-q")
    assert re.search(r"^  \d+ of \d+ checks, \d+ s; now 1 rank: all_reduce_\w+$", result.stderr, re.MULTILINE), (
        result.stderr
    )
    assert "; now " not in result.stdout


def test_badge_counts_laws(here: Path) -> None:
    check(f"{MINIMAL}:forgetful", "-w", "2", "-q", "--badge", "badge.json")
    shown = json.loads((here / "badge.json").read_text(encoding="utf-8"))
    assert shown["schemaVersion"] == 1
    assert re.fullmatch(r"\d+ laws broken", shown["message"])
    check(f"{MINIMAL}:adapter", "-w", "1", "-c", "sums_exactly", "-q", "--badge", "badge.json")
    shown = json.loads((here / "badge.json").read_text(encoding="utf-8"))
    assert (shown["label"], shown["color"]) == ("ddpcheck", "brightgreen")


@pytest.mark.usefixtures("here")
def test_passing_run_exits_with_0() -> None:
    result = check(f"{MINIMAL}:adapter", "-w", "1-2")
    assert result.exit_code == 0, result.output
    assert re.search(r"minimal, 2 ranks: \d+ passed", result.output)
    assert "✓ passed" in result.output
    assert re.search(r"check_ranks_start +✓ ✓", result.output)
    assert "skipped, because\n" in result.output
    assert re.search(r"\d+ passed, .*; \d+ Jobs in ", result.output.splitlines()[-1])


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("attribute", "status"), [("adapter", 0), ("absent", 2)])
def test_the_start_of_ranks_can_be_checked_alone(attribute: str, status: int) -> None:
    result = ddpcheck("check", f"{MINIMAL}:{attribute}", "-w", "1", "-c", "check_ranks_start", "-q")
    assert result.exit_code == status, result.output
    assert result.output.startswith("1 passed;" if attribute == "adapter" else "1 skipped;")


def test_failure_is_shown_written_and_replayed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = check(
        f"{MINIMAL}:forgetful", "-w", "2", "--json", "r.json", "--junit", "r.xml", "--markdown", "r.md", "--failures", "bad"
    )  # fmt: skip
    assert result.exit_code == 1, result.output
    assert "✗ forgetful, 2 ranks: check_" in result.output
    assert "but should be" in result.output
    command = re.search(r"run again: ddpcheck replay (bad/.*\.json) --adapter (\S+)", result.output)
    assert command is not None
    assert not all(verdict.ok for verdict in Results.load(here / "r.json").verdicts)
    assert "<failure" in (here / "r.xml").read_text()
    assert "## Failures" in (here / "r.md").read_text()
    refused = ddpcheck("replay", command[1])
    assert refused.exit_code == 2
    assert "names code to run" in refused.output
    again = ddpcheck("replay", command[1], "--adapter", command[2])
    assert again.exit_code == 1, again.output
    assert "all_reduce" in again.output
    assert "rank 0: done" in again.output
    assert f"stand-alone: python {command[1].removesuffix('.json')}.py\n" in result.output
    assert "collectives.all_reduce(argument" in (here / command[1]).with_suffix(".py").read_text()
    monkeypatch.setattr("ddpcheck.cli.replay.LogLines", partial(LogLines, seconds_between=0.0))
    right = ddpcheck("replay", command[1], "--adapter", f"{MINIMAL}:adapter", "--script", "made.py")
    assert "  0 s; now the Job runs (an operation counts as hung after 10 s)\n" in right.stderr
    assert "; now the Job runs again, for check_" in right.stderr
    assert right.exit_code == 0, right.output
    assert "now passes with this Job" in right.output
    assert "stand-alone: python made.py\n" in right.output
    assert f"{MINIMAL}:adapter" in (here / "made.py").read_text()


def test_a_job_of_replicas_has_no_script(here: Path) -> None:
    job = Job(2, (Backward(((0, 1), (2, 3))),), mlp((2, 1)), data=DataSpec(4))
    Failure("numpy_sockets", 2, "check_gradients_equal_the_large_batch_exactly", job).save(here / "job.json")
    refused = ddpcheck("replay", "job.json", "--script", "made.py")
    assert refused.exit_code == 2
    assert "are replayed by `ddpcheck replay job.json`" in refused.output
    assert not (here / "made.py").exists()


def test_a_file_in_the_working_folder_hides_no_module_of_python(here: Path) -> None:
    (here / "json.py").write_text("raise SystemExit('not the json that ranks need')")
    line = [sys.executable, "-m", "ddpcheck", "check", f"{MINIMAL}:adapter", "-w", "2", "-c", "sums_exactly"]
    shown = subprocess.run(
        [*line[:1], "-P", *line[1:]], capture_output=True, text=True, check=False
    )  # -P: it starts itself
    assert shown.returncode == 0, shown.stdout + shown.stderr


@pytest.mark.usefixtures("here")
def test_a_log_with_colours_has_no_bar_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = CliRunner().invoke(main, ["check", f"{MINIMAL}:adapter", "-w", "1", "-c", "sums_exactly"], color=True)
    assert result.exit_code == 0, result.output
    assert "\x1b[32m✓" in result.output
    assert "\x1b[?25l" not in result.output  # the sequence that hides the cursor
    assert "\r" not in result.output


@pytest.mark.usefixtures("here")
def test_failures_of_one_cause_are_shown_once_at_the_end() -> None:
    result = check(f"{MINIMAL}:forgetful", "-w", "2,3")
    assert re.search(
        r"^✗ forgetful, [23] ranks: check_\w+ \(collectives\): the same cause, not-reduced$",
        result.output,
        re.MULTILINE,
    )
    end = result.output[result.output.index("failures by cause") :]
    assert re.search(r"^  The value is this rank's own: it is not reduced\.$", end, re.MULTILINE)
    assert re.search(r"^      (check_\w+, )+at 2, 3 ranks; operation 0, all_reduce sum of .* got ", end, re.MULTILINE)
    command = re.search(r"start with: ddpcheck replay (.*\.json) --adapter", end)
    assert command is not None
    assert Path(command[1]).is_file()
    assert "skipped, because" not in end


REPAIRED = """
from dataclasses import replace
from pathlib import Path
from minimal_adapter import adapter as right, forgetful as wrong

def connect(context):
    return (right if Path("repaired").exists() else wrong).connect(context)

adapter = replace(right, name="mine", connect=connect)
"""


def test_files_of_earlier_failures_are_named_and_kept_once_their_checks_pass(here: Path) -> None:
    (here / "mine.py").write_text(REPAIRED, encoding="utf-8")
    words = f"{here / 'mine.py'}:adapter", "-w", "2", "--failures", "bad", "-q"
    assert "earlier failure" not in check(*words).output
    files = sorted(path.name for path in (here / "bad").iterdir())
    assert len(files) > 1
    (here / "bad" / "notes.txt").touch()
    (here / "repaired").touch()
    result = check(*words)
    assert result.exit_code == 0, result.output
    assert f"{len(files)} files in bad are of earlier failures, and their checks passed in this run" in result.output
    assert sorted(path.name for path in (here / "bad").iterdir()) == sorted([*files, "notes.txt"])
    assert "earlier failure" not in check(f"{MINIMAL}:adapter", *words[1:]).output


@pytest.mark.usefixtures("here")
def test_failure_of_forked_ranks_is_replayed_with_forked_ranks() -> None:
    result = check(f"{MINIMAL}:forgetful", "-w", "2", "--launcher", "fork", "--failures", "bad")
    assert result.exit_code == 1, result.output
    command = re.search(r"run again: ddpcheck replay (bad/.*\.json) --adapter (\S+)", result.output)
    assert command is not None
    file = Path(command[1])
    assert '"launcher": "fork"' in file.read_text()
    assert 'METHOD = "fork"' in file.with_suffix(".py").read_text()
    own = "--adapter", command[2]
    assert ddpcheck("replay", command[1], *own).exit_code == 1
    again = ddpcheck("replay", command[1], *own, "--launcher", "processes", "--script", "made.py")
    assert again.exit_code == 1, again.output
    assert 'METHOD = ""' in Path("made.py").read_text()


@pytest.mark.usefixtures("here")
def test_expected_failure_is_no_failure() -> None:
    first = check(f"{MINIMAL}:forgetful", "-w", "2")
    names = set(re.findall(r"2 ranks: (check_\w+) ", first.output))
    assert names
    expected = [word for name in sorted(names) for word in ("--expect-failure", f"{name}=ticket 7")]
    result = check(f"{MINIMAL}:forgetful", "-w", "2", *expected)
    assert result.exit_code == 0, result.output
    assert "x failed as expected" in result.output
    assert re.search(r"expected to fail, because\n  ticket 7: ", result.output)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check"], "name an adapter to check: .*numpy_sockets"),
        (["check", "nonsense"], "'nonsense' is not a known adapter"),
        (["check", "numpy_socket"], "'numpy_socket' is not a known adapter; did you mean numpy_sockets"),
        (["check", str(MINIMAL)], r"name the adapter in that file, too: .*minimal_adapter.py:adapter"),
        (["check", "ddpcheck"], "name the adapter in that module, too: ddpcheck:adapter"),
        (["check", "ddpcheck.my_adapter"], "did you mean ddpcheck:my_adapter"),
        (["check", f"{MINIMAL.with_suffix('')}:adapter"], r"did you mean .*minimal_adapter.py:adapter"),
        (["check", f"{MINIMAL}:adaptor"], "has no attribute 'adaptor'; did you mean adapter"),
        (["check", f"{MINIMAL}:adapter", "-c", "nonsense"], "no check matches 'nonsense'; families are"),
        (["check", f"{MINIMAL}:adapter", "-c", "check_ranks_strat"], "did you mean check_ranks_start"),
        (["faults", "grad-sum-not-men"], "did you mean grad-sum-not-mean"),
        (["audit", str(MINIMAL)], "defines an adapter, and trains nothing; check it: ddpcheck check .*:adapter"),
        (["launch", "absent.py", "--run"], "there is no script absent.py"),
        (["report", "absent.json"], "absent.json cannot be read: .*; write one with: ddpcheck bench"),
        (
            ["report", str(STORED / "results-2.json")],
            "holds verdicts, not measurements; show them with: ddpcheck report --html",
        ),
        (
            ["report", "--html", str(STORED / "bench-1.json")],
            "holds measurements, not verdicts; show them with: ddpcheck report ",
        ),
        (["gate", "numpy_sockets", "--base", "main"], "run the gate in the git repository of the implementation"),
        (["train", "numpy_sockets", "--model", "resnet"], "no model 'resnet'; it builds no model by name; or give "),
        (["check", f"{MINIMAL}:adapter", "-w", "0"], "should be world sizes from 1 to 1024"),
        (["check", f"{MINIMAL}:adapter", "-w", "two"], "should be world sizes such as"),
        (["check", f"{MINIMAL}:adapter", "--expect-failure", "check_x"], "should be NAME=REASON"),
        (
            ["check", f"{MINIMAL}:adapter", "--expect-failure", "check_ranks_strat=why"],
            "did you mean check_ranks_start",
        ),
        (["check", f"{MINIMAL}:adapter", "--attach", "localhost:0"], "needs one adapter and one --world-size"),
        (["check", f"{MINIMAL}:adapter", "-w", "1", "--attach", "localhost"], "should be HOST:PORT"),
        (["check", f"{MINIMAL}:adapter", "-w", "1", "--attach", "1.2.3.4..."], "should be HOST:PORT"),
        (["bench", "nosuch"], "'nosuch' is not a known adapter"),
        (["project", "--link", "1GbE", "--slowed-compute", "nan"], "--slowed-compute"),
        (["check", f"{MINIMAL}:idle"], "idle promises no facet, so there is nothing to check"),
        (["check", f"{MINIMAL}:adapter", f"{MINIMAL}:adapter"], "several adapters have the same name"),
        (["check", f"{MINIMAL}:absent", "-w", "1"], "nothing was checked of absent: not installed"),
        (["replay", __file__], "cannot be read"),
        (["list", "checks", "nonsense"], "no family is 'nonsense', and no check has it in its name; families are"),
        (["lits"], "did you mean list"),
    ],
)
def test_usage_errors(here: Path, words: list[str], message: str) -> None:
    result = ddpcheck(*words)
    assert result.exit_code == 2, result.output
    assert re.search(message, result.output)
    assert "Traceback" not in result.output
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "import numpy\nimport nosuch",
            r"No module named 'nosuch' \(.*mine.py, line 2\); install nosuch, or put nosuch.py beside mine.py",
        ),
        (
            "from ddpcheck.contract.nosuch import x",
            r"'ddpcheck.contract.nosuch' \(.*mine.py, line 1\); ddpcheck.contract is installed and has no nosuch",
        ),
        ("int('x')", r"ValueError: invalid literal .* \(.*mine.py, line 1\)"),
        ("def f(:", r"SyntaxError: invalid syntax \(mine.py, line 1\)"),
        ("import sys\nsys.exit(0)", r"SystemExit: 0 \(.*mine.py, line 2\); an adapter's module is imported"),
        ("import os\nos.environ['RANK']", r"KeyError: 'RANK' \(.*mine.py, line 2\); only ranks have that variable"),
        ("from . import x", r"no known parent package \(.*mine.py, line 1\); it belongs to a package"),
    ],
)
def test_a_file_that_cannot_be_imported_is_a_usage_error_with_its_place(here: Path, source: str, message: str) -> None:
    (here / "mine.py").write_text(source)
    for _ in range(2):
        result = ddpcheck("check", "mine.py:adapter")
        assert result.exit_code == 2, result.output
        assert re.search(message, " ".join(result.output.split()))


def test_a_module_beside_an_adapter_that_is_named_as_a_module_leads_to_the_name_of_the_file(here: Path) -> None:
    (here / "folder").mkdir()
    (here / "folder" / "mine.py").write_text("import nosuch_wire")
    (here / "folder" / "nosuch_wire.py").touch()
    result = ddpcheck("check", "folder.mine:adapter")
    assert result.exit_code == 2, result.output
    assert "nosuch_wire is beside mine.py" in result.output
    assert re.search(r"name the adapter by its file: \S*folder/mine.py:adapter", result.output)


def test_lists() -> None:
    assert "numpy_sockets" in ddpcheck("list", "adapters").output
    checks = ddpcheck("list", "checks").output
    assert all(check.name in checks for check in ddpcheck_properties.CHECKS)
    few = ddpcheck("list", "checks", "all_reduce_sums_ex").output
    assert re.findall("check_[a-z_]+", few) == ["check_all_reduce_sums_exactly"]
    assert "\n1 check; run one with" in few
    assert "unused_parameters" in ddpcheck("list", "capabilities").output
    assert re.search(r"world_sizes +any .*sample_weights +no ", ddpcheck("list", "capabilities").output, re.DOTALL)
    assert re.search(r"reductions +sum ", ddpcheck("list", "capabilities", f"{MINIMAL}:adapter").output)
    launchers = ddpcheck("list", "launchers").output
    assert all(re.search(rf"^{name} +yes ", launchers, re.MULTILINE) for name in ("processes", "spawn", "fork"))
    assert "mpiexec" in launchers
    assert all(profile.sentence in ddpcheck("list", "profiles").output for profile in PROFILES.values())


def test_doctor_says_what_is_missing() -> None:
    result = ddpcheck("doctor", f"{MINIMAL}:adapter", f"{MINIMAL}:absent")
    assert result.exit_code == 0, result.output
    assert "pip install surely_not_installed" in result.output
    assert "what to do next" in result.output
    assert "facet replica is not promised: check_" in result.output
    assert ddpcheck("doctor", f"{MINIMAL}:absent").exit_code == 1


def test_a_package_is_installed_by_its_own_name() -> None:
    assert how_to_install(["torch", "ignite"]) == "pip install torch pytorch-ignite", (
        "ignite is another project's package"
    )


def test_doctor_names_a_missing_package_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(adapter: Adapter) -> list[str]:
        return [name for name in adapter.requires if name in ("torch", "accelerate")]

    for module in ("running.plan", "cli.doctor"):
        monkeypatch.setattr(f"ddpcheck.{module}.missing_modules", missing)
    monkeypatch.setattr("ddpcheck.cli.doctor.installed_packages", dict)
    output = ddpcheck("doctor").output
    assert output.count("pip install 'ddpcheck[torch]'") == 1
    assert "for accelerate_prepare: pip install accelerate\n" in output
    adapters, _, advice = output.partition("\nadapters\n")[2].partition("what to do next")
    assert "pip install" not in adapters
    assert "pip install torch" not in advice
    assert f" of {len(installed_checks())} checks apply" in adapters


def test_what_ran_before_an_interrupt_is_shown_and_kept(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    words = ["check", f"{MINIMAL}:adapter", "--world-size", "1,2", "--json", str(results)]
    program = """
import signal
from ddpcheck.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
main()
"""
    command = [sys.executable, "-u", "-c", program, *words]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path)
    assert running.stdout is not None
    with running.stdout:
        first = running.stdout.readline()  # the line of world size 1, while world size 2 runs
        running.send_signal(signal.SIGINT)
        rest = running.stdout.read()
    assert running.wait(20) == 130, rest
    assert "1 rank" in first
    assert "interrupted:" in rest
    assert results.is_file()


@pytest.mark.usefixtures("here")
def test_stops_at_the_first_failure() -> None:
    result = ddpcheck(
        "check",
        "ddpcheck_implementations.faulty.replicas.gradient:GradSumNotMean",
        "-w",
        "2,3",
        "-x",
        "--profile",
        "quick",
    )
    assert result.exit_code == 1
    assert len(re.findall(r"^✗ faulty", result.output, re.MULTILINE)) == 1
    assert re.search(r"stopped at the first failure: \d+ of \d+ did not run", result.output)


def test_faults_are_caught_and_reported(here: Path) -> None:
    result = ddpcheck("faults", "avg-div", "--profile", "quick", "--json", "kills.json", "--markdown", "kills.md")
    assert result.exit_code == 0, result.output
    assert re.search(r"✓ avg-divides-by-numel \([\w.]+, 2 ranks, seen in [^)]+\): check_\w+ after", result.output)
    assert "The mean divides by the number of elements" in result.output
    assert re.search(r"(\d+) of \1 faults caught", result.output)
    kills = json.loads((here / "kills.json").read_text())["kills"]
    assert all(kill["first"]["diagnosis"]["causes"] and not kill["missed"] for kill in kills)
    assert "https://github.com/meta-pytorch/torchcomms/issues/287" in (here / "kills.md").read_text()


def test_what_was_found_before_an_interruption_is_written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = iter((run_fault,))

    def interrupted(*arguments: Any, **options: Any) -> Any:
        return next(run, _interrupt)(*arguments, **options)

    monkeypatch.setattr(faults, "run_fault", interrupted)
    result = ddpcheck("faults", "avg-div", "--profile", "quick", "--json", "kills.json")
    assert result.exit_code == 130, result.output
    assert "interrupted: 1 of 2 were not run" in result.output
    assert len(json.loads((here / "kills.json").read_text())["kills"]) == 1


def _interrupt(*arguments: Any, **options: Any) -> None:
    raise KeyboardInterrupt


def test_correct_adapters_are_not_flagged() -> None:
    result = ddpcheck("faults", "--unusual", "metric-running-mean", "--profile", "quick", "--deadline", "30")
    assert result.exit_code == 0, result.output
    assert "no check fails" in result.output


def test_an_unknown_fault_is_a_usage_error() -> None:
    result = ddpcheck("faults", "no-such-fault")
    assert result.exit_code == 2
    assert "no fault matches no-such-fault; families are" in result.output


def test_a_fault_that_survives_is_a_failure() -> None:
    correct = next(found for found in unusual() if found.name == "metric-running-mean")
    named = replace(correct, caught_by=("check_metrics_are_weighted_by_counts",))
    kill = run_fault(named, Settings(profile_named("quick")))
    assert not kill.caught
    assert kill.missed == named.caught_by


def test_a_log_tells_how_far_a_run_is() -> None:
    words = ["check", "numpy_sockets", "-w", "2", "-c", "check_barrier_waits_for_every_rank", "--profile", "quick"]
    done = CliRunner().invoke(main, words)
    assert done.output.startswith("  0 of 2 checks, 0 s; now 2 ranks: ranks_start\n"), done.output
    assert "checks, 0 s" not in CliRunner().invoke(main, [*words, "-q"]).output
