"""Laws of the whole run on hand-written evidence, and what holds for all laws of an audit."""

from __future__ import annotations

import pytest
from audit_evidence import WRAPPED, Event, backward, call, cause, evidence, state, step

from ddpcheck.audit.evidence import Evidence, RunSeen
from ddpcheck.audit.laws import (
    LAWS,
    gradients,
    replicas,
    world,
)
from ddpcheck.audit.verdicts import NOTHING_JUDGED, answer, verdicts_of
from ddpcheck.causes import Kind, as_listed, audit


def test_every_law_has_a_name_of_its_own_and_a_sentence() -> None:
    assert len({law.name for law in LAWS}) == len(LAWS)
    assert all(law.sentence.endswith(".") and len(law.sentence.split()) <= 20 for law in LAWS)


def test_headlines_of_causes_are_short() -> None:
    families = [getattr(audit, name) for name in audit.__all__]
    kinds = [kind for family in families for kind in vars(family).values() if isinstance(kind, Kind)]
    assert len(kinds) > 30
    assert all(len(as_listed(kind.headline).split()) <= 20 for kind in kinds)


def test_laws_without_observations_are_not_judged() -> None:
    nothing = evidence([], [])
    verdicts = verdicts_of(nothing)
    assert {verdict.status for verdict in verdicts} <= {"skipped", "failed", "passed"}
    assert answer(nothing, verdicts)[0] != 0


def test_only_a_strict_answer_asks_for_compared_gradients() -> None:
    events = [WRAPPED, state(1), backward(), step()]
    seen = evidence(events, events)
    verdicts = [verdict for verdict in verdicts_of(seen) if verdict.ok]
    status, told = answer(seen, verdicts)
    assert told.startswith("NO FINDING")
    assert (status, answer(seen, verdicts, strict=True)) == (0, (2, told))


def test_a_script_that_ends_before_it_trains_is_not_judged() -> None:
    ended = [{"kind": "installed"}, {"kind": "end", "why": "finished"}]
    assert world.ranks_form_one_world(evidence(ended, ended)).status == "not judged"
    alone = [{"kind": "installed"}, backward(), {"kind": "end", "why": "finished"}]
    assert cause(world.ranks_form_one_world(evidence(alone, alone))) == "world-is-one"


def test_gradients_of_parameters_that_are_not_trained_follow_from_their_optimizer() -> None:
    def told(**of_state: list[str]) -> set[str]:
        events = [WRAPPED, {**state(1), **of_state}, backward(), step(zero=True, grads=[None], parts=[0])]
        seen = evidence(events, events)
        return {v.diagnosis.cause.id for v in verdicts_of(seen) if v.diagnosis and v.diagnosis.cause}

    assert "gradients-all-zero" in told()
    replaced = told(unoptimized=["0.weight"], strays=["0.weight"])
    assert "optimizer-holds-replaced-parameters" in replaced
    assert "gradients-all-zero" not in replaced


@pytest.mark.parametrize("no_gpu", [False, True])
def test_a_script_that_finds_no_gpu_is_not_judged_unless_it_ran_without(no_gpu: bool) -> None:
    error = "RuntimeError: No CUDA GPUs are available"
    end = {"kind": "end", "why": "raised", "error": error, "line": "train.py:3", "at": 1.0}
    ended = [{"kind": "installed", "no_gpu": no_gpu}, end]
    seen = evidence(ended, ended)
    judged = world.ranks_end_without_error(seen)
    assert judged.status == ("broken" if no_gpu else "not judged")
    status, first = answer(seen, verdicts_of(seen))
    assert (status, "--no-gpu" in first) == ((1, False) if no_gpu else (2, True))


@pytest.mark.parametrize(
    ("errors", "found"),
    [
        (("SyntaxError: invalid syntax (train.py, line 2)",) * 2, "not judged"),
        (("ModuleNotFoundError: No module named 'missing'",) * 2, "not judged"),
        (("", "ModuleNotFoundError: No module named 'missing'"), "broken"),
    ],
)
def test_a_script_that_cannot_run_anywhere_is_not_judged(errors: tuple[str, ...], found: str) -> None:
    ends: list[Event] = [
        {"kind": "end", "why": "raised" if error else "finished", "error": error, "line": "train.py:2", "at": 1.0}
        for error in errors
    ]
    seen = evidence(*([{"kind": "installed"}, end] for end in ends))
    assert world.ranks_end_without_error(seen).status == found
    status, first = answer(seen, verdicts_of(seen))
    assert (status == NOTHING_JUDGED) == ("cannot be run" in first) == (found == "not judged")


@pytest.mark.parametrize(("statuses", "found"), [((2, 2), "not judged"), ((2, 0), "broken"), ((1, 1), "broken")])
def test_a_script_that_refuses_its_arguments_is_not_judged(statuses: tuple[int, ...], found: str) -> None:
    ends: list[Event] = [
        {
            "kind": "end",
            "why": "exit",
            "error": "the script exited",
            "exit_status": each,
            "line": "train.py:9",
            "at": 1.0,
        }
        for each in statuses
    ]
    seen = evidence(*([{"kind": "installed"}, end] for end in ends))
    assert world.ranks_end_without_error(seen).status == found
    status, first = answer(seen, verdicts_of(seen))
    assert (status == NOTHING_JUDGED) == ("does not accept its arguments" in first) == (found == "not judged")


@pytest.mark.parametrize(
    ("why", "error", "found"),
    [
        ("finished", "", "broken"),
        ("raised", "AttributeError: no such name", "not judged"),
        ("raised", "RuntimeError: Connection closed by peer", "broken"),
    ],
)
def test_a_rank_that_raises_has_not_decided_to_stop(why: str, error: str, found: str) -> None:
    def epoch(passed: int) -> list[Event]:
        begin = {"kind": "epoch", "key": "a", "loader": 0, "passed": passed, "distributed": None}
        return [
            begin,
            {"kind": "batch", "key": "a", "loader": 0, "passed": passed, "grad": True},
            backward(),
            step(passed),
        ]

    stopped = [*epoch(0), {"kind": "end", "why": why, "error": error, "line": "train.py:9", "at": 1.0}]
    seen = evidence(stopped, [*epoch(0), *epoch(1)])
    assert world.ranks_stop_together(seen).status == found


def test_sharded_parameters_are_not_compared() -> None:
    sharded = {"kind": "sharded", "optimizer": 0, "line": "train.py:4"}
    ranks = [[sharded, state(0, **{"0.0": part}), step(grads=[part])] for part in "ab"]
    seen = evidence(*ranks)
    for law in (replicas.ranks_start_from_the_same_parameters, replicas.replicas_stay_equal,
                gradients.gradients_are_synchronised, gradients.gradients_equal_those_of_one_process):  # fmt: skip
        judged = law(seen)
        assert judged.status == "not judged"
        assert "train.py:4" in judged.note


def test_a_crashed_law_is_unknown() -> None:
    verdicts = verdicts_of(evidence([{"kind": "step"}], [{"kind": "step"}]))
    assert "unknown" in {verdict.status for verdict in verdicts}


LEFT: Event = {"kind": "left", "op": "all_reduce", "values": None}


def test_collectives() -> None:
    judge = world.ranks_call_the_same_collectives
    same = [call("all_reduce", "train.py:4"), LEFT, call("barrier", "train.py:9")]
    assert judge(evidence(same, same)).status == "held"
    extra = [call("all_reduce", "train.py:4"), LEFT, call("all_reduce", "train.py:7"), call("barrier", "train.py:9")]
    found = judge(evidence(extra, same))
    assert cause(found) == "collective-in-rank-dependent-branch"
    assert found.causes[0].get("line") == "train.py:7"
    assert found.causes[0].get("ranks") == (0,)


def test_a_call_in_a_helper_is_told_with_its_callers_line() -> None:
    judge = world.ranks_call_the_same_collectives
    mean, start = "train.py:4", "train.py:30"
    same = [call("all_reduce", mean, callers=["train.py:20", start])]
    extra = [*same, call("all_reduce", mean, callers=["train.py:22", start]), call("barrier", "train.py:9")]
    found = judge(evidence(extra, [*same, call("barrier", "train.py:9")]))
    assert found.causes[0].get("line") == "train.py:22 (through train.py:4)"
    assert found.causes[0].get("ranks") == (0,)


def test_a_call_of_one_rank_is_told_though_it_was_paired_with_a_later_call_of_the_others() -> None:
    mean = "train.py:4"
    alone, common = (call("all_reduce", mean, callers=[line, "train.py:30"]) for line in ("train.py:22", "train.py:25"))
    found = world.ranks_call_the_same_collectives(evidence([alone, common], [common, call("barrier", "train.py:9")]))
    assert found.causes[0].get("line") == "train.py:22 (through train.py:4)"
    assert "call 0 differs" in found.headline
    assert "rank 1: all_reduce at train.py:25 (through train.py:4)" in found.headline


def test_a_rank_that_makes_no_backward() -> None:
    """The other rank's backward waits, and what follows the forward is another forward, or a collective."""

    def forward(number: int) -> Event:
        return {
            "kind": "forward", "step": number, "grad": True, "sync": True, "wrapper": 0, "buffers": False, "line": "train.py:6",
            "callers": [],
        }  # fmt: skip

    def judged(*after: Event) -> str:
        alike = [forward(0), backward(), step(), forward(1)]
        ranks = [[*alike, backward(step=1), forward(2)], [*alike, *after]]
        return cause(world.ranks_call_the_same_collectives(evidence(*ranks)))

    assert judged(forward(1)) == "backward-skipped-on-some-ranks"
    same = [[forward(0), backward(), step(), forward(1), backward(step=1)]] * 2
    assert world.ranks_call_the_same_collectives(evidence(*same)).status == "held"


def test_a_hang_in_a_helper_is_told_where_the_stacks_part() -> None:
    def stack(*lines: int) -> str:
        return "\n".join(f'  File "/home/me/train.py", line {line} in f' for line in lines)

    def waiting(*stacks: str, events: tuple[Event, ...] = ()) -> tuple[str, ...]:
        real = RunSeen(((), events), stacks, hung=True)
        judged = world.ranks_end_without_error(Evidence(("train.py",), 2, 6, 400, real))
        lines = judged.causes[0].get("lines")
        assert isinstance(lines, tuple)
        return tuple(map(str, lines))

    both = ("train.py:22 (through train.py:4)", "train.py:25 (through train.py:4)")
    assert waiting(stack(4, 22, 30), stack(4, 25, 30)) == both
    assert waiting(stack(4, 22, 30), stack(4, 22, 30)) == ("train.py:4", "train.py:4")
    ended: Event = {"kind": "end", "why": "finished"}
    earlier = call("all_reduce", "train.py:4", callers=["train.py:20", "train.py:30"])
    assert waiting(stack(4, 22, 30), "", events=(earlier, ended)) == both[:1]


def test_hang_names_ranks_and_operations() -> None:
    frames = ('File "/x/site-packages/torch/a.py", line 3 in wait', 'File "/home/me/train.py", line 12 in main')
    stack = "\n  ".join(("Thread 0x1 (most recent call first):", *frames))
    real = RunSeen(((), ({"kind": "end", "why": "finished"},)), (stack, ""), hung=True)
    judged = world.ranks_end_without_error(Evidence(("train.py",), 2, 6, 400, real))
    assert cause(judged) == "ranks-wait-for-each-other"
    assert judged.causes[0].get("lines") == ("train.py:12",)


def test_only_ranks_that_raised_by_themselves_are_named() -> None:
    """Rank 1 loses its connection to rank 0."""
    errors = "AssertionError: corrupt sample", "RuntimeError: Connection reset by peer"
    ends = [
        [{"kind": "end", "why": "raised", "error": error, "line": f"train.py:{rank + 3}", "at": 1.0 + rank}]
        for rank, error in enumerate(errors)
    ]
    judged = world.ranks_end_without_error(evidence(*ends))
    assert judged.causes[0].get("ranks") == (0,)
    assert judged.causes[0].get("line") == "train.py:3"
    assert not judged.details, "the output has the stack of rank 1"
