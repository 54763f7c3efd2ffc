"""`ddpcheck suggest` finds promises that an adapter keeps without making them, and none that it breaks."""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from ddpcheck.checks import select
from ddpcheck.cli import main
from ddpcheck.cli.search_progress import SearchProgress
from ddpcheck.cli.signals import StoppedBySignal
from ddpcheck.contract import Capabilities, ReplicaMethod
from ddpcheck.contract.promises import Determinism, ReplicaPromises, SamplerPromises, Traffic
from ddpcheck.launchers.fork_servers import ForkServers
from ddpcheck.running.candidate_promises import CandidatePromise, as_source, candidates, number_of_promises
from ddpcheck.running.plan import installed_checks
from ddpcheck.running.suggested_promises import OutOfTime, PromiseSearch, SuggestedPromise
from ddpcheck_implementations.numpy_sockets import adapter as right

OWN = '''
import threading

from ddpcheck import Adapter
from ddpcheck.contract import Capabilities
from ddpcheck.contract.promises import CollectivePromises, ReplicaPromises, SamplerPromises
from ddpcheck_implementations.numpy_sockets import adapter as sockets

class SameOrder:
    """A sampler that does not shuffle, whatever it is asked."""

    def __init__(self, made):
        self.made = made

    def __call__(self, length, *, shuffle, seed, drop_last):
        return self.made(length, shuffle=False, seed=seed, drop_last=drop_last)

def connect(context):
    facets = sockets.connect(context)
    object.__setattr__(facets, "make_sampler", SameOrder(facets.make_sampler))
    return facets

sampler = Adapter("sampler", sockets.connect, Capabilities(sampler=SamplerPromises()))
unshuffled = Adapter("unshuffled", connect, Capabilities(sampler=SamplerPromises()))
replica = Adapter("replica", sockets.connect, Capabilities(replica=ReplicaPromises()))
def withdraw(context):
    facets = sockets.connect(context)
    object.__setattr__(facets, "lacks", {"timeline": "there is no clock"})
    return facets

withdrawn = Adapter("withdrawn", withdraw, Capabilities(replica=ReplicaPromises()))
nothing = Adapter("nothing", sockets.connect, Capabilities())

class Bare:
    """A replica without optional methods, and without no_sync()."""

    def __init__(self, made):
        for name in ("backward", "zero_grad", "gradients", "parameters", "buffers", "predict"):
            setattr(self, name, getattr(made, name))

def connect_bare(context):
    facets = sockets.connect(context)
    made = facets.make_replica
    object.__setattr__(facets, "make_replica", lambda *given: Bare(made(*given)))
    return facets

class Zeros:
    """A replica whose unused parameters have a gradient of zeros."""

    def __init__(self, made):
        self.made = made

    def __getattr__(self, name):
        return getattr(self.made, name)

    def gradients(self):
        parameters = self.made.parameters()
        return {name: 0 * parameters[name] if each is None else each for name, each in self.made.gradients().items()}

def connect_zeros(context):
    facets = sockets.connect(context)
    made = facets.make_replica
    object.__setattr__(facets, "make_replica", lambda *given: Zeros(made(*given)))
    return facets

zeros = Adapter("zeros", connect_zeros, Capabilities(replica=ReplicaPromises()))

class Stuck:
    """A sampler that never ends if it is to shuffle, as on a machine that is too slow."""

    def __init__(self, made):
        self.made = made

    def __call__(self, length, *, shuffle, seed, drop_last):
        if shuffle:
            threading.Event().wait()
        return self.made(length, shuffle=shuffle, seed=seed, drop_last=drop_last)

def connect_stuck(context):
    facets = sockets.connect(context)
    object.__setattr__(facets, "make_sampler", Stuck(facets.make_sampler))
    return facets

summing = CollectivePromises(operations={"all_reduce"}, reductions={"sum"})
reducing = Adapter("reducing", sockets.connect, Capabilities(collectives=summing))
stuck = Adapter("stuck", connect_stuck, Capabilities(sampler=SamplerPromises()))
bare = Adapter("bare", connect_bare, Capabilities(replica=ReplicaPromises()))
'''


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def suggested(reference: str, *patterns: str) -> tuple[PromiseSearch, dict[str, SuggestedPromise]]:
    """All suggestions by the candidate's text, judged by these checks at two ranks."""
    checks = select(installed_checks(), patterns)
    with ForkServers() as fork_servers, PromiseSearch(reference, (2,), checks, fork_servers, effort=2) as suggesting:
        list(suggesting.baseline())
        held = [*suggesting.mending(), *suggesting.suggestions()]
    assert held == suggesting.held
    return suggesting, {each.candidate.text: each for each in (*held, *suggesting.failed.values())}


def test_kept_sampler_promises_are_suggested(own: Path) -> None:
    suggesting, found = suggested(f"{own}:sampler", "sampler")
    held = {name for name, each in found.items() if each.holds}
    assert {"drop_last=True", "shuffles=True", "distinct_streams=True", "sampler_state=True"} <= held
    assert suggesting.capabilities.sampler == SamplerPromises(
        drop_last=True, shuffles=True, distinct_streams=True, sampler_state=True
    )


def test_broken_sampler_promises_are_not_suggested(own: Path) -> None:
    suggesting, found = suggested(f"{own}:unshuffled", "sampler")
    assert found["drop_last=True"].holds
    assert not found["shuffles=True"].holds
    assert found["shuffles=True"].failed.startswith("check_")
    assert not suggesting.capabilities.sampler.shuffles


def test_promise_with_a_claim_as_default_repairs_failing_checks(own: Path) -> None:
    """Without replica_sync each replica keeps its own parameters; those of numpy_sockets do not."""
    suggesting, found = suggested(f"{own}:replica", "check_gradients_equal_the_large_batch_exactly")
    assert not suggesting.broken
    assert found["replica_sync=ReplicaSync.PARAMETERS"].passed == ("check_gradients_equal_the_large_batch_exactly",)


def test_promises_that_are_judged_only_together_are_tried_together(own: Path) -> None:
    _, found = suggested(f"{own}:replica", "large_batch_exactly", "check_clipping_uses_the_global_gradient_norm")
    assert found["clipping=True"].holds
    assert found["optimizers='adam'"].holds or found["optimizers='sgd'"].holds


def test_candidates_are_promises_that_are_not_made_of_facets_that_are_handed_out() -> None:
    promised = Capabilities(replica=ReplicaPromises(replica_methods={ReplicaMethod.NO_SYNC}, model_features={"branch"}))
    names = {each.text for each in candidates(promised)}
    assert {"clipping=True", "model_features='tied'", "determinism=Determinism.BETWEEN_RUNS"} <= names
    assert {"join='divide_by_live_ranks'", "unused_parameters='synchronised'"} <= names
    assert not {"no_sync=True", "model_features='branch'", "shuffles=True"} & names


def test_the_lines_that_are_printed_make_the_promises() -> None:
    before = Capabilities(replica=ReplicaPromises())
    after = before
    for name, value in (("no_sync", True), ("optimizers", "sgd"), ("determinism", Determinism.BETWEEN_CALLS)):
        after = CandidatePromise(name, value).made(after)
    variables = {"mine": replace(right, capabilities=before)}
    exec(as_source(before, after, "mine"), variables)
    assert variables["mine"].capabilities == after


def test_a_large_set_has_a_line_for_each_member_as_formatters_write_it() -> None:
    before = Capabilities(replica=ReplicaPromises())
    features = frozenset({"activity", "auxiliary_head", "batch_norm", "branch", "buffer", "delay", "embedding", "tied"})
    after = before.but(model_features=features)
    source = as_source(before, after, "mine")
    assert max(map(len, source.splitlines())) <= 88
    variables = {"mine": replace(right, capabilities=before)}
    exec(source, variables)
    assert variables["mine"].capabilities == after
    members = [f'                "{name}",' for name in sorted(features)]
    lines = ["        model_features=frozenset(", "            {", *members, "            }", "        ),"]
    assert "\n".join(lines) in source


def test_levels_of_one_promise_count_once() -> None:
    levels = [CandidatePromise("traffic", Traffic.ONCE), CandidatePromise("traffic", Traffic.LEAST)]
    members = [CandidatePromise("model_features", "branch"), CandidatePromise("model_features", "tied")]
    assert number_of_promises([*levels, *members, CandidatePromise("no_sync", True)]) == 4


def test_the_command_prints_what_to_paste(own: Path) -> None:
    done = CliRunner().invoke(main, ["suggest", f"{own}:sampler", "-w", "2"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "    capabilities=sampler.capabilities.but(\n" in done.output
    assert "        shuffles=True,\n" in done.output
    assert "ddpcheck list capabilities explains them" in done.output
    first = "state() may be called at any point of an epoch, even before the first sample"
    assert f"sampler_state=True: {first}\n" in done.output, "one sentence"


def test_log_shows_what_is_tried(own: Path) -> None:
    done = CliRunner().invoke(main, ["suggest", f"{own}:sampler", "-w", "2"], catch_exceptions=False)
    assert re.search(r"  0 of \d+ checks of its present promises, \d+ s; now check_", done.output), done.output
    assert re.search(r"  0 of \d+ promises tried, \d+ s; now \w+=", done.output), done.output


def test_promises_found_so_far_are_printed_when_time_is_over(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end_search_after_two_promises(monkeypatch, OutOfTime())
    done = CliRunner().invoke(main, ["suggest", f"{own}:sampler", "-w", "2", "--minutes", "60"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "There was no time left (--minutes 60): " in done.output
    assert_two_promises_are_printed(done.output)


def test_promises_found_so_far_are_printed_after_an_interrupt(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end_search_after_two_promises(monkeypatch, StoppedBySignal(signal.SIGTERM, lambda: None))
    done = CliRunner().invoke(main, ["suggest", f"{own}:sampler", "-w", "2"], catch_exceptions=False)
    assert done.exit_code == 128 + signal.SIGTERM, done.output
    assert "Interrupted: " in done.output
    assert_two_promises_are_printed(done.output)


def end_search_after_two_promises(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def begin(self: SearchProgress, done: int, total: int, text: str) -> None:
        if self._what == "promises tried" and done == 2:
            raise error

    monkeypatch.setattr(SearchProgress, "begin", begin)


def assert_two_promises_are_printed(output: str) -> None:
    found = re.search(r"(\d+) promises were not tried, or only in part: (.*)", output)
    assert found, output
    assert len(found[2].split(", ")) == int(found[1]) > 0
    assert "2 more promises seem to be kept" in output
    assert output.partition("capabilities.but(\n")[2].count("\n        ") == 1, output


def test_no_check_begins_when_time_is_over(own: Path) -> None:
    checks = installed_checks()
    with ForkServers() as fork_servers:
        search = PromiseSearch(f"{own}:sampler", (2,), checks, fork_servers, ends_at=0.0)
        with pytest.raises(OutOfTime), search:
            list(search.baseline())
    assert not search.asked
    assert search.untried


def test_promises_that_most_checks_need_are_tried_first(own: Path) -> None:
    """More checks need no_sync than any other single promise of a replica."""
    begun: list[str] = []

    class Seen(Exception):
        pass

    def begin(done: int, total: int, text: str) -> None:
        begun.append(text)
        raise Seen

    with ForkServers() as fork_servers:
        search = PromiseSearch(f"{own}:replica", (2,), installed_checks(), fork_servers, begin=begin)
        with pytest.raises(Seen), search:
            list(search.suggestions())
    assert begun == ["no_sync=True"]


def test_progress_counts_the_checks_of_a_promise(own: Path) -> None:
    """A promise of a replica has up to 70 checks, which take over a minute."""
    begun: list[str] = []
    checks = select(installed_checks(), ("sampler",))
    with ForkServers() as fork_servers:
        search = PromiseSearch(
            f"{own}:sampler", (2,), checks, fork_servers, effort=1, begin=lambda done, total, text: begun.append(text)
        )
        with search:
            next(search.suggestions())
    assert begun[1] == f"{begun[0]}, judged by 1 check so far"


def test_failed_promise_is_tried_again_after_one_that_its_check_asks_for(own: Path) -> None:
    """Each failed bundle is tried again at most once for each promise that holds."""
    suggesting, found = suggested(f"{own}:unshuffled", "sampler")
    assert {"shuffles=True", "distinct_streams=True"} & {name for name, each in found.items() if not each.holds}
    assert all(each.judge in suggesting.asked for each in suggesting.failed.values())


UNUSED = "check_unused_parameters_on_some_ranks_count_as_zero"


def test_a_convention_that_goes_with_a_promise_is_named(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    also_asks = "check_predictions_are_equal_on_all_ranks"
    checks = select(installed_checks(), ("large_batch_exactly", also_asks, UNUSED))
    monkeypatch.setattr("ddpcheck.cli.suggest.installed_checks", lambda: checks)
    done = CliRunner().invoke(main, ["suggest", f"{own}:zeros", "-w", "2"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    shown = next(line for line in done.output.splitlines() if "unused_parameters='synchronised', with" in line)
    assert "unused_gradient='zero'" in shown
    assert '        unused_gradient="zero",\n' in done.output
    assert "unused_parameters='synchronised': check_" not in done.output, "it does not fail"


def test_a_promise_that_is_not_judged_says_what_its_check_needs(own: Path) -> None:
    checks = select(installed_checks(), (UNUSED,))
    with ForkServers() as fork_servers:
        search = PromiseSearch(f"{own}:replica", (2,), checks, fork_servers)
    assert search.needed_with(CandidatePromise("model_features", "branch")) == (
        "replica.unused_parameters=synchronised",
    )
    assert search.needed_with(CandidatePromise("timeline", True)) == ()


def test_promise_whose_check_allows_few_ranks_is_tried_on_few_ranks(own: Path) -> None:
    checks = select(installed_checks(), ("check_world_can_restart_at_a_killed_worlds_address",))
    with ForkServers() as fork_servers, PromiseSearch(f"{own}:reducing", (2, 3), checks, fork_servers) as search:
        list(search.baseline())
        tried = {each.candidate.text for each in (*search.suggestions(), *search.failed.values())}
        assert "restarts_in_place=True" in tried
        assert search.needed_with(CandidatePromise("restarts_in_place", True)) == ()


def test_promise_that_ranks_withdraw_is_not_judged(own: Path) -> None:
    suggesting, _ = suggested(f"{own}:withdrawn", "timeline")
    assert "timeline=True" in {each.text for each in suggesting.unjudged}
    assert all(each.failed for each in suggesting.failed.values())


JOINS = ("join='divide_by_initial_world'", "join='divide_by_live_ranks'")
BARE = (
    "check_gradients_are_the_mean_of_local_gradients",
    "check_failed_backward_leaves_no_trace",
    "check_join_handles_ranks_out_of_batches",
    "check_gradients_equal_the_large_batch_exactly",
)


def test_promise_whose_method_is_missing_is_no_failed_promise(own: Path) -> None:
    """Promises that no check judges without that method are not tried, and one that was tried with it may still hold."""
    suggesting, found = suggested(f"{own}:bare", *BARE)
    missing = {name: each.missing for name, each in found.items() if each.missing}
    assert missing == {"no_sync=True": "no_sync"} | dict.fromkeys(JOINS, "join")
    assert {"timeline=True", "broken_backward='recovers'", "optimizers='sgd'"} <= {
        each.text for each in suggesting.unjudged
    }
    assert found["replica_sync=ReplicaSync.PARAMETERS"].holds


def test_missing_methods_are_named_apart_from_failures(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = select(installed_checks(), (BARE[0], BARE[2]))
    monkeypatch.setattr("ddpcheck.cli.suggest.installed_checks", lambda: checks)
    done = CliRunner().invoke(main, ["suggest", f"{own}:bare", "-w", "2"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    promises = ", ".join(f"{join} (join)" for join in JOINS) + ", no_sync=True (no_sync)"
    assert f"3 promises need methods that the implementation does not have: {promises}\n" in done.output
    assert "promises that fail" not in done.output


def test_promise_whose_check_does_not_end_is_not_judged(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The short deadline cannot tell a hang from a slow machine."""
    shuffled = next(each for each in installed_checks() if each.name == "check_shuffled_order_is_random")
    monkeypatch.setattr("ddpcheck.cli.suggest.installed_checks", lambda: (shuffled,))
    words = ["suggest", f"{own}:stuck", "-w", "2", "--deadline", "0.5"]
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert (
        "1 promise was not judged, because a check did not end in 0.5 s: it hangs, or this machine is too slow."
        in done.output
    )
    assert f"Try --deadline 2.5: shuffles=True ({shuffled.name})\n" in done.output
    assert "promises that fail" not in done.output


def test_adapter_without_facets_gets_advice(own: Path) -> None:
    done = CliRunner().invoke(main, ["suggest", f"{own}:nothing"])
    assert done.exit_code == 2
    assert "promises no facet" in done.output
