"""Every planned item gets its verdict, even if ranks fail; and the minimal adapter passes everything."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import minimal_adapter
import pytest

from ddpcheck import Diagnosis, Finding, Job, Session, Verdict, check_adapter, law, run_checks
from ddpcheck.causes import replicas
from ddpcheck.checks import Check
from ddpcheck.contract import needs
from ddpcheck.contract.adapter import Adapter
from ddpcheck.job import AllReduce, TensorSpec
from ddpcheck.running.check_runner import CheckRunner, Settings, run_check, run_items
from ddpcheck.running.expected_failures import NOTHING_EXPECTED, ExpectedFailures
from ddpcheck.running.plan import RANKS_START, installed_checks, plan
from ddpcheck.running.profiles import profile_named
from ddpcheck.storage.failing_jobs import Failure, failure_file

QUICK = Settings(profile_named("quick"), deadline=1.0)


@law("trial", needs.collectives.operations("all_reduce"))
def check_sum(session: Session) -> None:
    """The sum is the sum."""
    job = Job(session.world_size, (AllReduce(TensorSpec((1,))),))
    trace = session.run(job)
    if any(rank.outcome == "hung" for rank in trace.ranks):
        raise Finding(Diagnosis("hung, but should not have"), hung=True)
    results = trace.values(0, "result")
    if results[0].tobytes() != results[-1].tobytes():
        finding = Finding(Diagnosis("got two results, but should be one", (replicas.REPLICAS_DIFFER(),)))
        finding.job = job
        raise finding


@law("trial")
def check_that_crashes(session: Session) -> None:
    """Crashes."""
    session.run(Job(session.world_size, ()))
    raise ZeroDivisionError("a bug of the check")


@law("trial")
def check_of_nothing(session: Session) -> None:
    """Runs no Job."""


@law("trial", needs.replica.no_sync, needs.replica)
def check_of_replicas(session: Session) -> None:
    """Needs a promise that the minimal adapter does not make."""


def own(function: object) -> Check:
    found: Check = function.check  # type: ignore[attr-defined]  # the decorator `law` sets it
    return found


OWN = tuple(own(check) for check in (check_sum, check_that_crashes, check_of_nothing, check_of_replicas))


def run(adapter: Adapter, world_size: int = 2, expected: dict[str, str] | None = None) -> dict[str, Verdict]:
    items = plan(adapter, [world_size], OWN)
    verdicts = list(run_items(items, QUICK, ExpectedFailures(expected or {}, (RANKS_START, *OWN))))
    assert [verdict.check for verdict in verdicts] == [item.check.name for item in items]
    return {verdict.check: verdict for verdict in verdicts}


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_minimal_outsider_passes_everything_that_it_promises(world_size: int) -> None:
    verdicts = check_adapter(minimal_adapter.adapter, [world_size], profile="quick")
    assert [(v.check, v.diagnosis or v.reason) for v in verdicts if not v.ok] == []
    assert sum(verdict.status == "passed" for verdict in verdicts) >= 2
    assert {verdict.check for verdict in verdicts} == {check.name for check in installed_checks()}


def test_statuses() -> None:
    found = run(minimal_adapter.adapter)
    assert {name: verdict.status for name, verdict in found.items()} == {
        "check_ranks_start": "passed",
        "check_sum": "passed",
        "check_that_crashes": "unknown",
        "check_of_nothing": "skipped",
        "check_of_replicas": "skipped",
    }
    assert "ZeroDivisionError: a bug of the check" in found["check_that_crashes"].reason
    assert not found["check_that_crashes"].ok
    assert "no Job ran" in found["check_of_nothing"].reason
    assert found["check_of_replicas"].reason == "facet replica is not promised"
    assert found["check_sum"].jobs == 1
    assert found["check_sum"].seconds > 0


def test_failure_has_diagnosis_and_job() -> None:
    verdict = run(minimal_adapter.forgetful)["check_sum"]
    assert verdict.status == "failed"
    assert verdict.diagnosis == Diagnosis("got two results, but should be one", (replicas.REPLICAS_DIFFER(),))
    assert verdict.job == Job(2, (AllReduce(TensorSpec((1,))),))


def test_metrics_only_adapter_needs_no_other_facet() -> None:
    verdicts = check_adapter(minimal_adapter.metrics_alone, [3], ["metrics", "rendezvous"], profile="quick")
    assert "metrics" in {verdict.family for verdict in verdicts if verdict.status == "passed"}
    assert all(verdict.ok for verdict in verdicts), [verdict for verdict in verdicts if not verdict.ok]


def test_scores_only_adapter_needs_no_other_scores() -> None:
    verdicts = check_adapter(minimal_adapter.scores_alone, [2], ["scores"])
    assert all(verdict.ok for verdict in verdicts), [verdict for verdict in verdicts if not verdict.ok]
    skipped = {verdict.check for verdict in verdicts if verdict.status == "skipped"}
    assert skipped == {
        "check_macro_f1_averages_classes_seen_on_any_rank",
        "check_perplexity_of_large_losses_is_not_clamped",
        "check_auc_compares_samples_across_ranks",
        "check_perplexity_with_a_nan_sample_is_nan",
        "check_duplicate_samples_count_once_in_scores",
        "check_scores_ignore_padding",
    }


def test_every_installed_check_that_looks_at_sums_sees_the_broken_twin(tmp_path: Path) -> None:
    verdicts = check_adapter(minimal_adapter.forgetful, [2], ["all_reduce"], profile="quick", failures=tmp_path)
    failed = [verdict for verdict in verdicts if verdict.status == "failed" and verdict.job is not None]
    assert failed
    for verdict in failed:
        file = failure_file(tmp_path, verdict)
        assert file is not None
        assert Failure.load(file).job == verdict.job
        assert list(tmp_path.glob(f"{file.stem}*.py"))


def test_a_folder_for_failures_that_cannot_be_written_costs_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match="failing Jobs are not kept: .*file"):
        verdicts = check_adapter(
            minimal_adapter.forgetful, [2], ["check_all_reduce_sums_exactly"], "quick", failures=tmp_path / "file"
        )
    assert "failed" in {verdict.status for verdict in verdicts}


def test_hang_is_a_verdict() -> None:
    assert run(minimal_adapter.sleepy)["check_sum"].status == "hung"


def test_after_many_hangs_the_other_checks_are_skipped() -> None:
    checks = [replace(own(check_sum), name=f"check_{number}") for number in range(3)]
    items = plan(minimal_adapter.sleepy, (2,), checks)
    verdicts = list(
        run_items(items, replace(QUICK, deadline=0.3, most_hangs=2), ExpectedFailures({}, installed_checks()))
    )
    assert [verdict.status for verdict in verdicts] == ["passed", "hung", "hung", "skipped"]
    assert "hung before it" in verdicts[-1].reason


def test_start_hang_is_not_repeated_at_every_world_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddpcheck.ranks.attaching._STUCK_SECONDS", 0.5)
    items = plan(minimal_adapter.stuck, (2, 3), OWN[:1])
    verdicts = list(run_items(items, QUICK, NOTHING_EXPECTED))
    assert [verdict.status for verdict in verdicts] == ["failed", "skipped", "skipped", "skipped"]
    assert "did not return from connect()" in verdicts[1].reason
    assert {verdict.reason for verdict in verdicts[2:]} == {
        "the ranks did not return from connect() at world size 2; --world-size 3 tries it here"
    }


def test_ranks_that_do_not_start_are_one_failure_and_the_reason_of_all_skips() -> None:
    found = run(minimal_adapter.unstartable)
    start = found.pop("check_ranks_start")
    assert start.status == "failed"
    assert start.diagnosis is not None
    assert "no network today" in start.diagnosis.headline
    assert "ranks 0, 1: OSError" in start.diagnosis.text()
    assert {verdict.status for verdict in found.values()} == {"skipped"}
    assert "no network today" in found["check_sum"].reason


@pytest.mark.parametrize(
    ("adapter", "reason"),
    [
        (minimal_adapter.absent, "not installed: surely_not_installed; install with: pip install surely_not_installed"),
        (minimal_adapter.alone, "runs at world size 1 only"),
    ],
)
def test_unrunnable_check_is_skipped_with_the_reason(adapter: Adapter, reason: str) -> None:
    assert {verdict.reason for verdict in run(adapter).values()} == {reason}
    assert {verdict.status for verdict in run(adapter).values()} == {"skipped"}


def test_expected_failure() -> None:
    verdict = run(minimal_adapter.forgetful, expected={"check_sum": "ticket 7"})["check_sum"]
    assert (verdict.status, verdict.reason, verdict.ok) == ("expected_failure", "ticket 7", True)
    assert verdict.diagnosis is not None


def test_expected_failure_is_strict() -> None:
    verdict = run(minimal_adapter.adapter, expected={"check_sum": "ticket 7"})["check_sum"]
    assert verdict.status == "failed"
    assert verdict.diagnosis is not None
    assert verdict.diagnosis.headline == "passed, but was expected to fail (ticket 7)"
    assert "check_sum@2,3" in verdict.diagnosis.advice


def test_expected_failure_at_some_world_sizes() -> None:
    expected = {"check_sum@2,3": "ticket 7"}
    assert run(minimal_adapter.forgetful, 1, expected)["check_sum"].status == "passed"
    assert run(minimal_adapter.forgetful, 2, expected)["check_sum"].status == "expected_failure"


def test_a_crash_is_never_an_expected_failure() -> None:
    assert (
        run(minimal_adapter.adapter, expected={"check_that_crashes": "why"})["check_that_crashes"].status == "unknown"
    )


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ({"check_summ": "why"}, r"did you mean check_sum\?"),
        ({"check_sum": "  "}, "needs a reason"),
        ({"check_sum@x": "why"}, "name@2,3"),
    ],
)
def test_wrong_expectations_are_errors(expected: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ExpectedFailures(expected, OWN)


def test_run_check_knows_the_installed_checks_names() -> None:
    session = Session(minimal_adapter.adapter, 1)
    with session, pytest.raises(ValueError, match="did you mean check_ranks_start"):
        run_check(session, own(check_sum), {"check_rank_start": "why"})


def test_ranks_start_once() -> None:
    items = plan(minimal_adapter.adapter, [2], OWN)
    with CheckRunner(items[0].adapter, items[0].reference, 2, QUICK) as ranks:
        for item in items[:3]:
            ranks.verdict(item)
        assert ranks.session.starts == 1


def test_unknown_names_are_errors() -> None:
    with pytest.raises(ValueError, match="no check matches 'nonsense'"):
        list(run_checks(minimal_adapter.adapter, [1], ["nonsense"]))
    with pytest.raises(ValueError, match="unknown profile 'thorouh'; did you mean thorough"):
        check_adapter(minimal_adapter.adapter, [1], profile="thorouh")


def test_import_is_cheap() -> None:
    import subprocess

    code = (
        "import sys, ddpcheck.testing.pytest_plugin, ddpcheck.cli; print('numpy' in sys.modules, 'rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
