"""Scores that are no means: the oracle against values by hand, the data sets of Jobs, the references, and bounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from socket_ranks import on_ranks

from ddpcheck import Adapter, Facets, Job, RankTrace, Trace
from ddpcheck.contract import TYPICAL, needs
from ddpcheck.contract.allowed_names import SCORES
from ddpcheck.contract.validation import problems_of_adapter
from ddpcheck.execution import ContractViolation, Execution
from ddpcheck.hypotheses.causes_of_wrong_numbers import causes_of_scores
from ddpcheck.hypotheses.scores.evidence import WrongScore
from ddpcheck.job import Score
from ddpcheck.oracle.scores import allowed, counted, score_of
from ddpcheck.seeded_values import Array
from ddpcheck.storage.dataclass_json import from_plain, to_plain
from ddpcheck.trace import Record
from ddpcheck.verdict import Finding
from ddpcheck_implementations.data_parallel.scores import compute_score
from ddpcheck_implementations.numpy_sockets.communicator import Communicator
from ddpcheck_properties.metrics.score_comparison import as_of_one_process, equal, no_number

NAMES = sorted(SCORES)
GUESSES, LABELS = np.array([0, 0, 1, 2, 0]), np.array([0, 1, 1, 0, 0])


def outputs_of(guesses: Array, classes: int) -> Array:
    return np.eye(classes, dtype=np.float32)[guesses]


def score(name: str, indices: tuple[tuple[int, ...], ...], **more: Any) -> Score:
    return Score(name, indices, 2 if name == "auc" else 3, **more)


def test_scores_are_those_that_are_worked_out_by_hand() -> None:
    outputs = outputs_of(GUESSES, 4)
    assert score_of("accuracy", outputs, LABELS) == 3 / 5
    # class 0: two hits, 3 + 3; class 1: one, 1 + 2; class 2: predicted once; class 3: does not occur
    assert score_of("f1_macro", outputs, LABELS) == pytest.approx((4 / 6 + 2 / 3 + 0) / 3, rel=1e-15)
    assert score_of("perplexity", np.zeros((5, 4), np.float32), LABELS) == pytest.approx(4, rel=1e-15)
    rest = 3 + math.e
    by_hand = math.exp((3 * math.log(rest / math.e) + 2 * math.log(rest)) / 5)
    assert score_of("perplexity", outputs, LABELS) == pytest.approx(by_hand, rel=1e-15)
    assert score_of("rmse", np.array([[1.0, 2], [3, 4]]), np.array([[1.0, 0], [0, 4]])) == math.sqrt((4 + 9) / 4)
    margins = np.array([[0, 3.0], [0, 1], [0, 1], [0, 0]])
    # of the pairs: 3 over 1, 3 over 0, and 1 over 1, which counts half; not 1 over 0
    assert score_of("auc", margins, np.array([1, 1, 0, 0])) == 3.5 / 4


@pytest.mark.parametrize("name", NAMES)
def test_without_samples_or_pairs_there_is_no_score(name: str) -> None:
    assert math.isnan(score_of(name, *score(name, ((),)).rows(())[:2]))
    assert math.isnan(score_of("auc", np.zeros((3, 2)), np.ones(3, np.int64)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("values", ["lattice", "real"])
def test_a_sample_is_the_same_wherever_it_is_held(name: str, values: Any) -> None:
    made = score(name, ((5, 0, 3), (), (1, -1)), seed=4, values=values)
    alone = score(name, ((3,), (0, 1), (5,)), seed=4, values=values)
    for which in (0, 1):
        (first, nothing, last), (third, more, fifth) = (
            [each.given(rank)[which] for rank in range(3)] for each in (made, alone)
        )
        assert (first[0] == fifth[0]).all()
        assert (first[2] == third[0]).all()
        assert (last[0] == more[1]).all()
        assert nothing.shape == (0, *first.shape[1:])
    outputs, targets, _ = made.given(2)
    assert score_of(name, outputs[:1], targets[:1]) != score_of(name, outputs, targets) or name == "auc"
    assert from_plain(to_plain(made)) == made


@pytest.mark.parametrize("values", ["lattice", "real"])
def test_the_largest_output_stands_out_and_padding_is_wrong(values: Any) -> None:
    made = Score("accuracy", (tuple(range(200)), (-1,)), 5, values=values, guesses=2)
    outputs, labels, _ = made.rows((*range(200), -1))
    ordered = np.sort(outputs, axis=1)
    assert (ordered[:, -1] - ordered[:, -2] >= 0.5).all()
    assert set(outputs[:-1].argmax(axis=1)) == {0, 1}
    assert outputs[-1].argmax() != labels[-1]
    assert labels[:5].tolist() == [0, 1, 2, 3, 4]


def test_samples_may_be_called_by_large_numbers_and_padding_stays_padding() -> None:
    plain, far = (Score("rmse", ((2, -1, 0),), first=first) for first in (0, 1 << 24))
    assert far.given(0)[2].tolist() == [(1 << 24) + 2, -1, 1 << 24]
    assert (far.given(0)[0] == plain.given(0)[0]).all()
    apart = Score("rmse", ((2, -1, 0),), first=1, apart=1 << 32)
    assert apart.given(0)[2].tolist() == [(1 << 33) + 1, -1, 1]


@pytest.mark.parametrize("name", NAMES)
def test_single_precision_is_allowed_and_half_precision_is_not(name: str) -> None:
    for seed in range(8):
        outputs, targets, _ = score(name, (tuple(range(300)),), seed=seed, values="real").rows(tuple(range(300)))
        exact, bound = score_of(name, outputs, targets), allowed(name, outputs, targets, 3)
        assert 0 < bound < 2**-11 * exact
        if name == "rmse":
            total = np.float32(0)
            for term in np.square(outputs - targets).reshape(-1):
                total += term
            found = float(np.sqrt(total / np.float32(outputs.size)))
        elif name == "perplexity":
            total = np.float32(0)
            for row, label in zip(outputs, targets, strict=True):
                total += np.log(np.exp(row).sum()) - row[label]
            found = float(np.exp(total / np.float32(len(outputs))))
        else:
            found = float(np.float32(exact))
        assert abs(found - exact) <= bound


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "held",
    [
        ((0, 1, 2), (3, 4), (5,)),
        ((), (1, 0, 3), ()),
        ((0, 3, 0), (3, 1), (1, 2, 4)),
        ((-1, 0), (-1,), (1, 2, -1)),
        ((), (), ()),
    ],
    ids=["uneven", "two are empty", "twice", "padding", "nothing"],
)
def test_the_reference_counts_every_sample_of_all_ranks_once(name: str, held: tuple[tuple[int, ...], ...]) -> None:
    made = score(name, held, seed=2)

    def program(comm: Communicator) -> float:
        return compute_score(comm, comm.rank, name, *made.given(comm.rank))

    outputs, targets, _ = made.rows(tuple(sorted({index for rank in held for index in rank if index >= 0})))
    assert on_ranks(3, program) == pytest.approx([score_of(name, outputs, targets)] * 3, rel=1e-14, nan_ok=True)


def test_an_unknown_score_and_jobs_that_do_not_fit_are_errors() -> None:
    nothing: Any = None
    with pytest.raises(ValueError, match="no score 'bleu' here; choose one of accuracy"):
        compute_score(nothing, 0, "bleu", *score("rmse", ((),)).given(0))
    with pytest.raises(ValueError, match="samples for 1 ranks, not 2"):
        Job(2, (score("rmse", ((0,),)),))
    with pytest.raises(ValueError, match="nor -1"):
        Job(1, (score("rmse", ((0, -2),)),))
    with pytest.raises(ValueError, match="of 2 classes, not 3"):
        Job(1, (Score("auc", ((0,),)),))
    with pytest.raises(ValueError, match="no rank holds the poisoned sample 4"):
        Job(1, (score("rmse", ((0,),), poisoned=4),))


def test_a_facet_without_scores_is_no_promise() -> None:
    promised = TYPICAL.of_facets("scores").but(score_names=frozenset())
    problems = problems_of_adapter(Adapter("empty", lambda context: Facets(rank=0, world_size=1), promised))
    assert problems == ["it promises the facet scores, but Capabilities.scores.score_names is empty"]
    assert needs.scores.score_names("rmse").lacking(promised, 2) == "rmse is not among the promised score_names"
    assert needs.scores.score_names("rmse").lacking(TYPICAL.of_facets("replica"), 2) == "facet scores is not promised"


def test_results_and_arguments_are_validated() -> None:
    def changing(name: str, outputs: Array, targets: Array, indices: Array) -> Any:
        outputs[...] = 0
        return 0.5 if name == "accuracy" else "0.5 or so"

    def done(name: str) -> dict[str, Any]:
        facets = Facets(rank=0, world_size=1, compute_score=changing)
        execution = Execution(facets, Job(1, (score(name, ((0, 1),)),)), 0, lambda position: None)
        execution.run()
        return execution.records[0].values

    assert done("accuracy") == {"score": 0.5, "argument_changed": True}
    with pytest.raises(ContractViolation, match=r"must return a number, got '0\.5 or so'"):
        done("rmse")


def trace_of(*scores: float, changed: bool = False) -> Trace:
    made = [Record(0, "score", 0.0, 1.0, {"score": each, "argument_changed": changed}) for each in scores]
    return Trace(tuple(RankTrace(rank, "done", (record,)) for rank, record in enumerate(made)))


def test_verdicts_name_the_rank_and_the_cause() -> None:
    made = score("rmse", ((0, 1, 2), (3,)))
    job = Job(2, (made,))
    right, *parts = (score_of("rmse", *made.rows(held)[:2]) for held in ((0, 1, 2, 3), *made.indices))
    as_of_one_process(job, trace_of(right, right))
    told = {
        (sum(parts) / 2,) * 2: (0, "mean-of-rank-scores"),
        (right, right**2): (1, "root-not-taken"),
        (right, parts[1]): (1, "score-not-combined"),
        (math.nan, math.nan): (0, None),
        (right * (1 + 1e-4),) * 2: (0, "score-imprecise"),
    }
    for scores, (rank, cause) in told.items():
        with pytest.raises(Finding, match=f"on rank {rank} got {scores[rank]}, but should be") as caught:
            as_of_one_process(job, trace_of(*scores))
        first = caught.value.diagnosis.cause
        assert (first and first.id) == cause
    with pytest.raises(Finding, match="an array that rank 0 passed for rmse"):
        as_of_one_process(job, trace_of(right, right, changed=True))
    with pytest.raises(Finding, match="compared with rank 0, on rank 1"):
        equal(job, trace_of(right, right + 1e-12))
    equal(job, trace_of(math.nan, math.nan))  # wrong, but alike
    with pytest.raises(Finding, match=r"on rank 1 got 3\.0, but should be NaN"):
        no_number(job, trace_of(math.nan, 3.0))


@pytest.mark.parametrize(
    ("times", "told"),
    [(0.1, ["loss-cut-off"]), (10.0, []), (None, ["labels-shifted"])],
    ids=["less", "more", "shifted"],
)
def test_large_perplexity_is_cut_off_only_if_it_is_too_small(times: float | None, told: list[str]) -> None:
    made = score("perplexity", ((0, 1, 2), (3, 4, 5, 6)), far=True)
    outputs, targets, _ = made.rows(counted(made.indices))
    right, shifted = score_of("perplexity", outputs, targets), score_of("perplexity", outputs, (targets + 1) % 3)
    got = shifted if times is None else times * right
    of = WrongScore(made, (), 0, got, right, allowed("perplexity", outputs, targets, 2))
    assert [cause.id for cause in causes_of_scores([of])] == told
