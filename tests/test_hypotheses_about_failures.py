"""Evidence in, causes out: ranks that fail or hang in a Job, and after a disturbed start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpcheck.causes import Cause, Kind, operations, ranks, rendezvous, values
from ddpcheck.causes.training.early_stopping import STOPS_BY_OWN_LOSS
from ddpcheck.contract import TYPICAL
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.errors.evidence import FailedRank, group_in_which_it_hangs
from ddpcheck.hypotheses.failed_ranks import Hang, last_words, rank_raised
from ddpcheck.hypotheses.ordered_hypotheses.ranks import OF_A_DISTURBED_START, OF_A_HANG, OF_AN_ERROR
from ddpcheck.hypotheses.rendezvous import DisturbedStart
from ddpcheck.job import AllReduce, Broadcast, Job, Operation, Sample, Sleep, Start, TensorSpec, Train
from ddpcheck.trace import IMPORTING, Outcome, RankTrace, Record, Trace, WrongForm
from ddpcheck_properties.training.drawn_runs import run_job

REDUCED = AllReduce(TensorSpec((3,), "float32"), "sum")


def rank(number: int, outcome: Outcome, kind: str = "all_reduce", at: int = 0, **more: str) -> RankTrace:
    """A rank whose last operation has this kind and position."""
    return RankTrace(number, outcome, (Record(at, kind, 0.0, None, {}),), **more)


def moving(number: int, kind: str = "all_reduce", at: int = 0) -> RankTrace:
    """A hung rank that still sends or receives."""
    return replace(rank(number, "hung", kind, at), transferred=7)


def hang(*members: RankTrace, group: tuple[int, ...] | None = None) -> Hang:
    return Hang(Trace(members), group)


@pytest.mark.parametrize(
    ("of", "kind"),
    [
        (hang(rank(0, "hung"), rank(1, "done"), group=(0,)), ranks.GROUP_WAITS_WITHOUT_PEERS),
        (hang(rank(0, "hung", stack='File "/lib/subprocess.py", line 1'), rank(1, "done")), ranks.WAITS_FOR_A_PROGRAM),
        (hang(rank(0, "hung", stack=IMPORTING), rank(1, "done")), ranks.IMPORTS_MODULES),
        (hang(moving(0), moving(1)), ranks.STILL_EXCHANGES_MESSAGES),
        (hang(moving(0), moving(1, at=1), rank(2, "done")), ranks.STILL_EXCHANGES_MESSAGES),
        (hang(moving(0), rank(1, "hung")), ranks.ALL_WAIT_IN_ONE_OPERATION),
        (hang(rank(0, "hung", "close"), rank(1, "done")), ranks.CLOSE_WAITS),
        (hang(rank(0, "hung", "sample"), rank(1, "done")), ranks.LOCAL_OPERATION_DOES_NOT_END),
        (hang(rank(0, "hung")), ranks.WAITS_WITHOUT_PEERS),
        (hang(rank(0, "hung", "send_recv"), rank(1, "done")), ranks.SENT_MESSAGE_LOST),
        (hang(rank(0, "hung", "broadcast"), rank(1, "done")), ranks.BROADCAST_NOT_FORWARDED),
        (hang(rank(0, "hung"), rank(1, "done")), ranks.LEFT_COLLECTIVE_EARLY),
        (hang(rank(0, "hung"), rank(1, "hung", at=1)), ranks.RANKS_IN_DIFFERENT_OPERATIONS),
        (hang(rank(0, "hung"), rank(1, "hung")), ranks.ALL_WAIT_IN_ONE_OPERATION),
        (hang(rank(0, "hung"), rank(1, "hung"), rank(2, "done"), group=(0, 1)), ranks.ALL_WAIT_IN_ONE_OPERATION),
    ],
)
def test_hang_is_explained_by_the_positions_of_ranks(of: Hang, kind: Kind) -> None:
    assert kind.explains(first_cause(OF_A_HANG, of))


def failed(
    operation: Operation, error: str = "", outcome: Outcome = "raised", *own: Cause, form: WrongForm | None = None
) -> FailedRank:
    """Rank 0 of two fails in the second operation, after rank 1 was late; rank 1 succeeds."""
    here = (Record(1, operation.kind, 0.0, None, {}),)
    culprit = RankTrace(0, outcome, here, error, wrong_form=form)
    return FailedRank(own, culprit, Job(2, (Sleep(1, 0.5), operation)), Trace((culprit, RankTrace(1, "done", here))))


RAISED = ranks.RANK_RAISED(error="ValueError", at="ddp.py:8 in hook")


@pytest.mark.parametrize(
    ("of", "kinds"),
    [
        (failed(REDUCED, "TimeoutError: timed out"), [operations.GAVE_UP_WAITING]),
        (failed(AllReduce(TensorSpec((0,), "float32"))), [operations.EMPTY_ARRAY]),
        (failed(AllReduce(TensorSpec((), "float32"))), [operations.ZERO_DIMENSIONS]),
        (failed(Broadcast(REDUCED.tensor, 1, (0, 1)), "ValueError: bad root"), [operations.ROOT_NOT_FOUND]),
        (failed(REDUCED, "", "invalid", form=WrongForm("float64", (3,), "float32", (3,))), [operations.NOT_CONVERTED_BACK]),
        (failed(REDUCED, "", "invalid", form=WrongForm("float32", (3, 1), "float32", (3,))), [operations.SHAPE_LOST]),
        (failed(REDUCED, "x", "raised", ranks.RANK_DIED(), values.ZERO()),
         [values.ZERO, operations.TAKES_ANOTHER_PATH]),
        (failed(REDUCED, "KeyError: 3", "raised", RAISED), [ranks.RANK_RAISED, operations.TAKES_ANOTHER_PATH]),
        (failed(REDUCED, "RuntimeError: max(): Expected reduction dim to be specified for input.numel() == 0", "raised", RAISED),
         [ranks.RANK_RAISED, operations.TAKES_ANOTHER_PATH]),
        (failed(REDUCED, "ValueError: expected 8 bytes, got 4", "raised", RAISED), [operations.OTHER_MESSAGE_RECEIVED]),
        (failed(Sample(1), "x", "raised", values.ZERO()), [values.ZERO]),
    ],
)  # fmt: skip
def test_error_is_explained_by_its_operation(of: FailedRank, kinds: list[Kind]) -> None:
    assert [cause.id for cause in first_cause(OF_AN_ERROR, of)] == [kind.id for kind in kinds]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("Mismatch: rank 0 is in barrier, but expected broadcast", True),
        ("RuntimeError: Connection closed by peer", True),
        ("ZeroDivisionError: division by zero", False),
    ],
)
def test_training_run_that_some_ranks_have_ended(error: str, *, told: bool) -> None:
    culprit, other = rank(0, "raised", "train", error=error), rank(1, "done", "train")
    job = run_job(2, TYPICAL.of_facets("trainer"), 8, Train())
    found = first_cause(OF_AN_ERROR, FailedRank((), culprit, job, Trace((culprit, other))))
    assert found == ((operations.RUN_ENDED_BY_SOME(ranks=(1,), rank=0),) if told else ())


def test_likely_reason_of_some_ranks_end_comes_before_the_end() -> None:
    culprit, other = rank(0, "raised", "train", error="Mismatch: rank 0 is in barrier"), rank(1, "done", "train")
    job = run_job(2, TYPICAL.of_facets("trainer"), 8, Train(patience=1))
    own, ended = STOPS_BY_OWN_LOSS(), operations.RUN_ENDED_BY_SOME(ranks=(1,), rank=0)
    found = first_cause(OF_AN_ERROR, FailedRank((own,), culprit, job, Trace((culprit, other))))
    assert found == (own, ended.but("likely"))


@pytest.mark.parametrize("frames", [1, 2])
def test_the_exception_is_read_below_the_frames(frames: int) -> None:
    """An error in the adapter's own method has one frame."""
    frame = '  File "/here/mine.py", line 4, in all_reduce\n    raise RuntimeError(words)\n'
    culprit = rank(0, "raised", error=f"{frame * frames}RuntimeError: no route\nsecond line")
    assert last_words(culprit) == "RuntimeError: no route"
    assert rank_raised(culprit) == ranks.RANK_RAISED(error="RuntimeError", at="mine.py:4 in all_reduce")


def test_group_of_a_hang_is_known_if_all_others_do_not_hang() -> None:
    assert group_in_which_it_hangs(failed(AllReduce(REDUCED.tensor, "sum", (0,)), outcome="hung")) == (0,)
    assert group_in_which_it_hangs(failed(AllReduce(REDUCED.tensor, "sum", (1,)), outcome="hung")) is None
    assert group_in_which_it_hangs(failed(REDUCED, outcome="hung")) is None


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (Start(short_reads=True), rendezvous.SHORT_READ_TAKEN_FOR_ALL),
        (Start(taken_ports=True), rendezvous.PORT_LOOKED_UP_FREE),
        (Start(strangers=True), rendezvous.STRANGER_TAKEN_FOR_RANK),
        (Start((1, 0), in_place=True), rendezvous.OLD_WORLD_LEFT),
        (Start(neighbour=True), rendezvous.NAME_SHARED_BY_WORLDS),
        (Start((1, 0)), rendezvous.RANK_BY_ARRIVAL),
    ],
)
def test_disturbance_of_a_start_is_the_cause(start: Start, kind: Kind) -> None:
    of = DisturbedStart(Job(2, (REDUCED,), start=start), completed=True)
    assert kind.explains(first_cause(OF_A_DISTURBED_START, of))


def test_rank_that_fails_after_another_order_of_arrival_was_not_awaited() -> None:
    of = DisturbedStart(Job(2, (REDUCED,), start=Start((1, 0))), completed=False)
    assert first_cause(OF_A_DISTURBED_START, of) == (rendezvous.EARLY_RANK_NOT_AWAITED(order=(1, 0)),)


def test_order_of_arrival_at_an_old_address_may_be_the_cause() -> None:
    kinds = {True: rendezvous.RANK_BY_ARRIVAL, False: rendezvous.EARLY_RANK_NOT_AWAITED}
    for completed, kind in kinds.items():
        of = DisturbedStart(Job(2, (REDUCED,), start=Start((1, 0), in_place=True)), completed)
        assert first_cause(OF_A_DISTURBED_START, of) == (rendezvous.OLD_WORLD_LEFT(), kind(order=(1, 0)))
    unordered = DisturbedStart(Job(2, (REDUCED,), start=Start(in_place=True)), completed=False)
    assert first_cause(OF_A_DISTURBED_START, unordered) == (rendezvous.OLD_WORLD_LEFT(),)
