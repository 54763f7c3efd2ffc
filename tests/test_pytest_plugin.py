"""The checks in a user's own pytest run."""

from __future__ import annotations

from pathlib import Path

import pytest

import ddpcheck_properties
from ddpcheck import check_adapter

# pytester removes modules from sys.modules that a run in this process has imported, and NumPy cannot be imported twice
assert ddpcheck_properties.CHECKS

MINIMAL = Path(__file__).parent / "minimal_adapter.py"

USER_FILE = """
from ddpcheck import parametrize_with_checks

@parametrize_with_checks({arguments})
def test_my_ddp(check):
    check()
"""


@pytest.fixture(scope="module")
def sums() -> str:
    """An installed check that fails on the broken twin, found by running them."""
    verdicts = check_adapter(f"{MINIMAL}:forgetful", [2], ["all_reduce"], profile="quick")
    return next(verdict.check for verdict in verdicts if verdict.status == "failed")


def write(pytester: pytest.Pytester, arguments: str) -> None:
    pytester.makepyfile(test_user=USER_FILE.format(arguments=arguments))


def test_ids_skips_and_passes(pytester: pytest.Pytester) -> None:
    write(pytester, f"['{MINIMAL}:adapter'], world_sizes=[1, 2], checks=['all_reduce', 'zero_grad']")
    result = pytester.runpytest("-v", "-rs", "--ddp-profile=quick")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*test_my_ddp?minimal-w1-check_ranks_start? PASSED*"])
    result.stdout.fnmatch_lines(["*test_my_ddp?minimal-w2-check_zero_grad_resets_gradients? SKIPPED*"])
    result.stdout.fnmatch_lines(["SKIPPED*facet replica is not promised*"])


def test_checks_that_do_not_apply_can_be_deselected(pytester: pytest.Pytester) -> None:
    chosen = "checks=['all_reduce_sums_exactly', 'all_reduce_is_reproducible', 'zero_grad_resets']"
    write(pytester, f"['{MINIMAL}:adapter'], world_sizes=[1], {chosen}")
    pytester.makepyfile(test_other="import pytest\n@pytest.mark.parametrize('check', [0])\ndef test_other(check): pass")
    options = ("--ddp-profile=quick", "--ddp-level=basic")
    pytester.runpytest(*options).assert_outcomes(passed=3, skipped=2)
    result = pytester.runpytest(*options, "--ddp-applicable-only", "-v")
    result.assert_outcomes(passed=3, deselected=2)
    result.stdout.no_fnmatch_line("*zero_grad*")
    result.stdout.no_fnmatch_line("*is_reproducible*")


def test_checks_that_this_machine_cannot_run_are_not_deselected(pytester: pytest.Pytester) -> None:
    write(pytester, f"['{MINIMAL}:absent'], world_sizes=[1], checks=['all_reduce_sums_exactly', 'zero_grad_resets']")
    result = pytester.runpytest("--ddp-applicable-only", "-rs")
    result.assert_outcomes(skipped=2, deselected=1)
    result.stdout.fnmatch_lines(["SKIPPED*not installed: surely_not_installed*"])


@pytest.mark.parametrize("sizes", ["", ", world_sizes=[1, 3]"])
def test_world_sizes_of_the_command_line_win(pytester: pytest.Pytester, sizes: str) -> None:
    write(pytester, f"['{MINIMAL}:adapter']{sizes}, checks=['all_reduce_sums_exactly']")
    result = pytester.runpytest("--collect-only", "-q", "--ddp-world-sizes=2")
    assert {line.split("[")[1].split("-check")[0] for line in result.outlines if "test_my_ddp[" in line} == {
        "minimal-w2"
    }


def test_a_level_leaves_checks_out(pytester: pytest.Pytester) -> None:
    write(pytester, f"['{MINIMAL}:adapter'], world_sizes=[1], checks=['check_all_reduce_is_reproducible']")
    result = pytester.runpytest("-rs", "--ddp-profile=quick", "--ddp-level=basic")
    result.stdout.fnmatch_lines(["SKIPPED*left out at --level basic; it runs at standard*"])


def test_a_seed_and_a_deadline_reach_the_ranks(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "from ddpcheck import parametrize_with_checks\n"
        f"@parametrize_with_checks(['{MINIMAL}:adapter'], world_sizes=[1], checks=['all_reduce_sums'])\n"
        "def test_mine(check):\n"
        "    assert (check.place.settings.deadline, check.place.settings.random_seed) == (33.5, 7)\n"
        "    check()\n"
    )
    result = pytester.runpytest("--ddp-profile=quick", "--ddp-deadline=33.5", "--ddp-seed=7")
    assert result.ret == 0


@pytest.mark.parametrize("option", ["--ddp-deadline=soon", "--ddp-deadline=0", "--ddp-seed=-1", "--ddp-seed=x"])
def test_values_of_options_that_mean_nothing_are_errors(pytester: pytest.Pytester, option: str) -> None:
    write(pytester, f"['{MINIMAL}:adapter'], world_sizes=[1]")
    result = pytester.runpytest(option)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{option.partition('=')[0]} '*' should be *"])


def test_failure_shows_the_diagnosis_and_no_traceback(pytester: pytest.Pytester, sums: str) -> None:
    write(pytester, f"['{MINIMAL}:forgetful'], world_sizes=[2], checks=['{sums}']")
    result = pytester.runpytest("--ddp-profile=quick")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*rank 0: got *, but should be *", "*run again: ddpcheck replay *.json*"])
    result.stdout.no_fnmatch_line("*bound.py*")
    assert sorted(file.suffix for file in (pytester.path / "ddpcheck-failures").iterdir()) == [".json", ".py"]


def test_expected_failures_are_strict(pytester: pytest.Pytester, sums: str) -> None:
    expected = f"expected_failures={{'{sums}': 'ticket 7'}}"
    adapters = f"['{MINIMAL}:forgetful', '{MINIMAL}:adapter']"
    write(pytester, f"{adapters}, world_sizes=[2], checks=['{sums}'], {expected}")
    result = pytester.runpytest("--ddp-profile=quick", "-rx")
    result.assert_outcomes(passed=2, xfailed=1, failed=1)
    result.stdout.fnmatch_lines(["XFAIL*forgetful*ticket 7*"])
    result.stdout.fnmatch_lines(["*passed, but was expected to fail (ticket 7)*"])


def test_unknown_names_are_errors_without_traceback(pytester: pytest.Pytester) -> None:
    write(pytester, f"['{MINIMAL}:adapter'], expected_failures={{'check_ranks_strat': 'why'}}")
    result = pytester.runpytest()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*did you mean check_ranks_start*"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_test_without_the_argument_is_told(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        f"from ddpcheck import parametrize_with_checks\n"
        f"@parametrize_with_checks(['{MINIMAL}:adapter'])\ndef test_mine(): pass\n"
    )
    pytester.runpytest().stdout.fnmatch_lines(["*give it the argument `check`, and call it*"])


STARTS = """
import os, pathlib
import minimal_adapter
from ddpcheck import Adapter, parametrize_with_checks

def connect(context):
    pathlib.Path({folder!r}, f"start-{{context.world_size}}-{{context.rank}}-{{os.getpid()}}").touch()
    return minimal_adapter.connect(context)

adapter = Adapter("mine", connect, minimal_adapter.promises)

@parametrize_with_checks([adapter], world_sizes=[1, 2], checks=["all_reduce"])
def test_one(check):
    check()

@parametrize_with_checks([adapter], world_sizes=[1, 2], checks=["all_reduce"])
def test_two(check):
    check()
"""


@pytest.mark.parametrize("mode", ["prepend", "importlib"])
def test_ranks_start_once_for_each_world_size(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    folder = pytester.mkdir("started")
    pytester.makepyfile(test_user=STARTS.format(folder=str(folder)))
    monkeypatch.setenv("PYTHONPATH", str(MINIMAL.parent))
    result = pytester.runpytest_subprocess(f"--import-mode={mode}", "--ddp-profile=quick", "-W", "error")
    assert result.ret == 0
    started = sorted(path.name.rpartition("-")[0] for path in folder.iterdir())
    assert started == ["start-1-0", "start-2-0", "start-2-1"]


def test_conformance_without_an_adapter_is_a_usage_error(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--pyargs", "ddpcheck_properties")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*has no adapter to check; name the implementation with --ddp-adapter*"])


def test_conformance_of_an_adapter_by_option(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess(
        "--pyargs", "ddpcheck_properties", "--ddp-adapter", f"{MINIMAL}:adapter", "--ddp-world-sizes=2",
        "--ddp-profile=quick", "--strict-markers", "-W", "error",
    )  # fmt: skip
    assert result.ret == 0
    assert result.parseoutcomes()["passed"] >= 2


def test_on_several_workers(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    write(pytester, f"['{MINIMAL}:adapter'], world_sizes=[1, 2], checks=['all_reduce']")
    result = pytester.runpytest_subprocess("-n2", "--dist=loadgroup", "--ddp-profile=quick", "-W", "error")
    assert result.ret == 0
    assert result.parseoutcomes()["passed"] >= 4


def test_nothing_is_imported_unless_used(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import sys\ndef test_other(): assert 'numpy' not in sys.modules and 'rich' not in sys.modules")
    result = pytester.runpytest_subprocess("-p", "no:hypothesispytest", "-W", "error")
    assert result.ret == 0
