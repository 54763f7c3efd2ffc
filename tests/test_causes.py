"""Diagnosis of arrays by the oracle's evidence: the right cause, and not a similar one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from ddpcheck.causes import Cause, Elements, gradients, updates, values
from ddpcheck.hypotheses.arrays import Evidence
from ddpcheck.hypotheses.arrays.lost_precision import as_bfloat16, as_float16
from ddpcheck.hypotheses.causes_of_wrong_arrays import likely_causes
from ddpcheck.hypotheses.evidence import evidence_of_gradient, of_origin
from ddpcheck.hypotheses.gradients.contributions import Contributions
from ddpcheck.hypotheses.norms import of_norm
from ddpcheck.job import OptimizerSpec
from ddpcheck.oracle import ExpectedArray
from ddpcheck.oracle.bounded_values import Value
from ddpcheck.oracle.history import Done, History
from ddpcheck.oracle.optimizer import Optimizer
from ddpcheck.oracle.origins import Norm, Tracked, Update
from ddpcheck.seeded_values import Array
from ddpcheck.verdict import Finding
from ddpcheck_properties.replicas import comparison

OWN = np.array([[8.0, 4.0], [-4.0, 16.0], [2.0, -8.0]])


def first(got: Array, expected: Array, evidence: Evidence) -> Cause:
    """The likeliest cause; one with the id "unknown" if there is none."""
    return next(iter(likely_causes(got, expected, evidence)), Cause("unknown"))


def _cause(got: Array, expected: Array, own: Array, backwards: int = 1, last: Array | None = None) -> Cause:
    made = Contributions(own, own, own if last is None else last, None, backwards, np.ones(len(own)), False, False)
    return first(got, expected, evidence_of_gradient(made, expected, 0))


@pytest.mark.parametrize(("got", "times"), [(2.0, 1), (0.0, 2)])
def test_nonzero_array_is_explained_first(got: float, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def evidence_of(entry: ExpectedArray, rank: int) -> Evidence:
        asked.append(rank)  # asking is expensive
        return Evidence(2)

    monkeypatch.setattr(comparison, "evidence_of", evidence_of)
    entry = ExpectedArray(Value(np.ones((2, 3))), "float64", ("there", "there"), (0, 1))
    entries = {f"fc{number}": entry for number in range(100)}
    wrong = {name: np.full(3, 2.0) for name in entries}
    with pytest.raises(Finding) as found:
        comparison.compare_arrays([wrong | {"fc0": np.full(3, got)}, wrong], entries, "gradients", "at the end")
    assert values.SUMMED_NOT_AVERAGED.explains(found.value.diagnosis.causes)
    assert "wrong are 100 of 100 gradients" in found.value.diagnosis.details[-1]
    assert len(asked) == times


@pytest.mark.parametrize("groups", [[[0, 1], [2]], [[0], [1, 2]]])
def test_equally_weighted_groups_of_ranks_are_recognised(groups: list[list[int]]) -> None:
    means = np.mean([OWN[group].mean(axis=0) for group in groups], axis=0)
    cause = _cause(means, OWN.mean(axis=0), OWN)
    assert cause == gradients.GROUPS_WEIGH_EQUALLY(groups=tuple(map(str, groups)))


def test_missing_last_micro_batch_is_recognised() -> None:
    last = np.array([[1.0, 3.0], [5.0, -1.0], [3.0, 4.0]])
    cause = _cause((OWN - last).mean(axis=0), OWN.mean(axis=0), OWN, 2, last)
    assert cause.id == "last-micro-batch-missing"


def test_factor_near_one_differs_from_lost_precision() -> None:
    expected = np.array([1.0, 3.0, -7.0, 0.0, 11.3], "float32")
    cause = first((expected * 1.001).astype("float32"), expected, Evidence(3))
    assert (cause.id, cause.get("factor")) == ("wrong-factor", pytest.approx(1.001))
    fewer = as_float16(expected).astype("float32")
    assert str(first(fewer, expected, Evidence(3)).get("dtype")).startswith("float16")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_narrower_dtype_of_moved_values_is_named(dtype: str) -> None:
    sent = np.array([0.1, -1.7, np.nan, 1e-7, 3e5, 0.0])
    rounded = {"float16": as_float16, "bfloat16": as_bfloat16, "float32": np.float32}[dtype](sent)
    assert first(np.asarray(rounded, "float64"), sent, Evidence(3, moved=True)) == values.SENT_AS(dtype=dtype)


def test_single_integer_off_by_one_is_no_float_conversion() -> None:
    expected = np.arange(1, 18, dtype="int32") * (2**24 + 1)
    one_off = expected.copy()
    one_off[8] += 1
    assert first(one_off, expected, Evidence(3)).id != "integers-as-float"
    as_floats = first(expected.astype("float32").astype("int32"), expected, Evidence(3))
    assert as_floats == values.INTEGERS_AS_FLOAT(dtype="float32", bits=24)


def test_another_large_integer_is_no_float_conversion() -> None:
    """Two integers near 2^60 differ by less than the rounding of float32, but this one is no rounded number."""
    expected = np.array([2**60 + 525_765_414], "int64")
    other = np.array([2**60 - 991_240], "int64")
    assert first(other, expected, Evidence(3)).id != "integers-as-float"
    as_floats = first(expected.astype("float32").astype("int64"), expected, Evidence(3))
    assert as_floats == values.INTEGERS_AS_FLOAT(dtype="float32", bits=24)


@pytest.mark.parametrize(
    "cause",
    [
        values.WRONG_DIVISOR(divisor=4, world_size=3, factor=0.75),
        values.LOSS_SCALE_KEPT(factor=1024.0),
        values.WRONG_FACTOR(factor=0.7),
    ],
)
def test_known_factors_are_named(cause: Cause) -> None:
    expected = np.array([3.0, -5.0, 7.0, 11.0, 1.0])
    factor = cause.get("factor")
    assert isinstance(factor, float)
    found = first(expected * factor, expected, Evidence(3))
    assert (found.id, found.get("factor"), found.get("divisor")) == (
        cause.id,
        pytest.approx(factor),
        cause.get("divisor"),
    )


def test_clamping_requires_all_elements_within_the_limit() -> None:
    cut, larger, alike = (np.array(got) for got in ([2.0, -2.0, 1.0], [2.0, -2.0, 9.0], [2.0, 2.0, 1.0]))
    cause = first(cut, np.array([5.0, -3.0, 1.0]), Evidence())
    assert (cause.id, cause.get("limit")) == ("clamped", 2.0)
    assert first(larger, np.array([5.0, -3.0, 9.0]), Evidence()).id != "clamped"
    assert first(alike, np.array([3.0, 3.0, 1.0]), Evidence()).id != "clamped"


def test_clamped_parts_need_one_plausible_limit() -> None:
    own = np.array([[-132.0, 40.0, 300.0], [-8.0, -250.0, 7.0]])
    for limit in (100.0, 91.0):
        cause = _cause(np.clip(own, -limit, limit).mean(axis=0), own.mean(axis=0), own)
        assert (cause.id, cause.get("limit")) == ("parts-clamped", pytest.approx(limit))
    one = own[:, :1]
    assert _cause(np.clip(one, -100, 100).mean(axis=0), one.mean(axis=0), one).id == "parts-clamped"
    assert _cause(np.clip(one, -91, 91).mean(axis=0), one.mean(axis=0), one).id != "parts-clamped"
    alike = np.array([[1.0, -1.0, 1.0]])
    assert not likely_causes(alike[0] / 2, alike[0], Evidence(1, alike[0], parts=alike)), "a factor does the same"


def test_gradient_not_reset_on_some_ranks_is_recognised() -> None:
    before = np.array([[3.0, -1.0], [3.0, -1.0], [3.0, -1.0]])
    own = np.array([[8.0, 5.0], [-4.0, 16.0], [2.0, -9.0]])
    made = Contributions(own, own, own, before, 1, np.ones(3), False, False)
    got = own.mean(axis=0) + before[0] / 3
    cause = first(got, own.mean(axis=0), evidence_of_gradient(made, own.mean(axis=0), 0))
    assert cause == gradients.SOME_RANKS_NOT_RESET(count=1, world_size=3)


def test_parameter_in_the_buffer_of_its_gradient_is_recognised() -> None:
    own, value = np.array([[8.0, 5.0], [-4.0, 16.0]]), np.array([[0.25, -3.0]] * 2)
    made = Contributions(own, own, own, own * 2, 1, np.ones(2), False, False, value=value)
    got = own.mean(axis=0) + value[0]
    cause = first(got, own.mean(axis=0), evidence_of_gradient(made, own.mean(axis=0), 0))
    assert cause == gradients.PARAMETER_ADDED()


def test_explanations_allow_rounding_and_zeros_explain_nothing() -> None:
    expected = np.array([1.0, 2.0])
    decay, lost = Cause("decay"), Cause("lost")
    known = Evidence(alternatives=((decay, expected + 1e-6), (lost, np.zeros(2))), bound=np.full(2, 1e-8))
    assert first(expected + 1e-6 + 5e-9, expected, known) == decay
    tiny = replace(known, bound=np.full(2, 1e-8), alternatives=known.alternatives[1:])
    assert first(np.array([1e-9, 0.0]), expected, tiny) != lost


def test_zero_local_gradient_does_not_imply_not_reduced() -> None:
    before, gradient = np.array([[1.0, 1.0]] * 2), np.array([[2.0, 4.0]] * 2)
    update = Update("w", before, gradient, Optimizer(OptimizerSpec(lr=1.0), "float64"), History())
    expected = before[0] - gradient[0]
    assert first(np.array([-1.0, 1.0]), expected, of_origin(update, expected, 0)).id == "not-updated"


@pytest.mark.parametrize(("own", "certainty"), [([2.0, 0.0], "possible"), ([2.0, 8.0], "likely")])
def test_parameter_may_stay_because_its_own_gradient_is_zero(own: list[float], certainty: str) -> None:
    before, gradients_of_ranks = np.array([[1.0, 1.0]] * 2), np.array([own, [2.0, 8.0 - own[1]]])
    mean = np.broadcast_to(gradients_of_ranks.mean(axis=0), before.shape)
    history = History((Done(cast(Any, None), {"w": gradients_of_ranks}, {}, {}),))
    update = Update("w", before, mean, Optimizer(OptimizerSpec(lr=1.0), "float64"), history)
    expected = before[0] - mean[0]
    cause = first(np.array([-1.0, 1.0]), expected, of_origin(update, expected, 0))
    assert (cause.id, cause.certainty) == ("not-updated", certainty)


@pytest.mark.parametrize("seed", range(8))
def test_norm_that_leaves_out_all_gradients_is_a_number(seed: int) -> None:
    """Rounding may leave less than zero of the square."""
    drawn = np.random.default_rng(seed)
    own = {f"{layer}.{kind}": drawn.standard_normal((2, 7)) for layer in ("fc1", "fc2") for kind in ("weight", "bias")}
    done = Done(cast(Any, None), own, {}, {})
    predicted = of_norm(Norm(History((done,)), dict.fromkeys(own, 1), 1.0))
    assert all(np.isfinite(array).all() for _, array in predicted)


def test_a_variance_of_all_samples_is_unbiased_by_their_number() -> None:
    before, measured, counts = np.ones((2, 2)), np.array([[2.0, 3.0]] * 2), np.array([2, 4])
    after = 0.9 * before + 0.1 * measured
    evidence = of_origin(Tracked(before, after, counts, together=True), after[0], 0)
    own = 0.9 * before[0] + 0.1 * measured[0] * (5 / 6) / (1 / 2)
    assert first(own, after[0], evidence).id == "variance-by-own-samples"
    assert first(0.9 * before[0] + 0.1 * measured[0] * 5 / 6, after[0], evidence).id == "variance-biased"


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lost_precision_is_recognised_by_bits_not_by_error_size(name: str, dtype: str) -> None:
    rounded = as_float16 if name == "float16" else as_bfloat16
    parts = np.array([[0.7071, -1.3333, 3.1415], [2.7182, 0.1234, -0.5772]])
    expected = parts.mean(axis=0)
    evidence = Evidence(2, parts=parts)
    for got in (rounded(parts).mean(axis=0), rounded(rounded(parts / 2).sum(axis=0)), rounded(expected)):
        cause = first(got.astype(dtype), expected.astype(dtype), evidence)
        assert (cause.id, cause.get("dtype")) == ("rounded-as", name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fixed_point_leaves_few_digits_to_small_values(dtype: str) -> None:
    expected = np.array([0.7071, -0.013333, 0.31415, 0.0027182, 0.01234, -0.5772]).astype(dtype)
    step = 2.0**-12
    got = (np.rint(expected / step) * step).astype(dtype)
    assert first(got, expected, Evidence(2)).id == "fixed-point"
    rounded = as_float16(expected).astype(dtype)  # floats: small values keep as many digits as large ones
    assert first(rounded, expected, Evidence(2)).id != "fixed-point"


def test_integers_in_float32_are_not_in_fixed_point() -> None:
    expected = (2.0**50 + 2.0**30 + 2.0**24) * np.array([1, 2, -1, 4, -1, -2, 1, -1])
    got = expected.astype(np.float32).astype(np.float64)
    assert first(got, expected, Evidence(1)).id == "fewer-bits"


def test_nan_in_place_of_an_infinity_alone_is_told() -> None:
    expected = np.array([np.inf, 1.0, -np.inf])
    got = np.array([np.nan, 1.0, np.nan])
    assert first(got, expected, Evidence(2)).id == "infinity-becomes-nan"
    assert first(np.full(3, np.nan), expected, Evidence(2)).id != "infinity-becomes-nan"


def test_8_bit_values_are_multiples_of_one_127th() -> None:
    parts = np.array([[0.7071, -1.3333, 3.1415], [2.7182, 0.1234, -0.5772]])
    expected, evidence = parts.mean(axis=0), Evidence(2, parts=parts)
    steps = np.abs(parts).max(axis=1, keepdims=True) / 127
    got = (np.rint(parts / steps) * steps).mean(axis=0)
    assert first(got, expected, evidence).id == "sent-as-int8"
    cause = first(expected * (1 + np.array([3e-3, -2e-3, 1e-3])), expected, evidence)
    assert (cause.id, cause.get("dtype")) == ("fewer-bits", "bfloat16 or int8")


def test_one_element_may_agree_with_one_of_many_pieces_by_chance() -> None:
    got, expected = np.arange(40.0), np.arange(40.0)
    got[3] = 7.0
    piece = Cause("another-piece")
    pieces = tuple((piece, np.full(40, float(value))) for value in range(20))
    assert first(got, expected, Evidence(2, alternatives=pieces)).id != piece.id
    got[4:6] = 7.0
    assert first(got, expected, Evidence(2, alternatives=pieces)) == piece.among(Elements(3, 40, 3, 5))


@pytest.mark.parametrize(("values_of_others", "certainty"), [((1.0, 2.0, 3.0), "possible"), ((1.0, 3.0), "likely")])
def test_array_that_agrees_with_one_of_many_is_only_possibly_that_one(
    values_of_others: tuple[float, ...], certainty: str
) -> None:
    """Of hundreds of small gradients of a few integers, one is often equal to any wrong gradient."""
    drawn = np.random.default_rng(0).choice(values_of_others, (300, 3))
    got, expected = np.array([2.0, 2.0, 1.0]), np.array([2.0, -1.0, 1.0])
    drawn[150] = got
    others = tuple((gradients.OTHER_PARAMETERS_GRADIENT(parameter=str(n)), array) for n, array in enumerate(drawn))
    cause = first(got, expected, Evidence(3, alternatives=others))
    assert (cause.id, cause.certainty) == ("other-parameters-gradient", certainty)


def test_low_rank_gradient_is_recognised_as_a_projection() -> None:
    expected = np.random.default_rng(0).random((4, 3))
    left, sizes, right = np.linalg.svd(expected)
    near = left[:, :2] * sizes[:2] @ right[:2]
    assert first(near, expected, Evidence(2)) == values.LOW_RANK(rank=2, expected_rank=3)
    assert first(np.outer(expected[:, 0], [0.3, 2.0, -1.0]), expected, Evidence(2)).id != "low-rank"
    idle = np.full((4, 3), 7.0)
    updated, right = idle - 0.1 * near, idle - 0.1 * expected
    assert first(updated, right, Evidence(2, before=idle, idle=idle)).id == "low-rank"
    assert first(updated, right, Evidence(2, before=idle)).id != "low-rank"


@pytest.mark.parametrize(("scale", "told"), [(1024, True), (4096, True), (1 << 30, False), (3, False)])
def test_tiny_update_differs_from_no_update(scale: int, *, told: bool) -> None:
    before = np.array([0.25, -0.5, 0.75], np.float32)
    way = np.array([0.01, -0.02, 0.005])
    got = (before + way / scale).astype(np.float32)
    none = Cause("not-updated")
    evidence = Evidence(2, alternatives=((none, before.astype(np.float64)),), before=before.astype(np.float64))
    cause = first(got, before + way, evidence)
    assert (cause.id == "tiny-update" and cause.get("shrunk") == pytest.approx(scale, rel=0.01)) == told
    assert (cause == none) == (scale == 1 << 30)


def test_constant_offset_is_not_lost_precision() -> None:
    expected = np.array([16388.0, 4096.0, -8192.0, 20480.0])
    assert first((expected + 1).astype(np.float32), expected, Evidence(3)) == values.CONSTANT_ADDED(offset=1.0)
    assert first(expected + np.array([1, 1, 1, 2]), expected, Evidence(3)).id != "constant-added"
    assert first(np.full(4, 3.0), np.full(4, 2.0), Evidence(3)).id != "constant-added"


@pytest.mark.parametrize("begins", [256, 100])
def test_unexplained_tail_is_described_by_its_first_element(begins: int) -> None:
    expected = np.random.default_rng(0).random(400)
    got = expected.copy()
    got[begins:] = np.random.default_rng(1).random(400 - begins)
    assert first(got, expected, Evidence(2)) == values.TAIL_WRONG(first=begins, byte=8 * begins)


def test_one_zero_is_not_attributed_to_a_rank() -> None:
    own = np.array([[0.0], [2.0]])
    assert _cause(np.zeros(1), np.ones(1), own) == values.ZERO().among(Elements(1, 1, 0, 0))


def test_misplaced_block_boundary_shifts_one_side() -> None:
    mine, theirs = (np.random.default_rng(seed).integers(-99, 99, 401).astype(np.float64) for seed in (0, 1))
    got = mine + theirs
    got[201:] = mine[200:-1] + theirs[201:]
    cause = first(got, mine + theirs, Evidence(2, local=mine))
    assert (cause.id, cause.get("part"), cause.get("distance")) == ("shifted", "this rank's own part", -1)


def test_all_kinds_of_causes_that_predict_the_same_values_are_told() -> None:
    """Two steps with equal gradients: a lost momentum and a dampened one give the same parameters."""
    lost, damped, other = updates.OPTIMIZER_STATE_LOST(), updates.MOMENTUM_DAMPENED(), updates.NESTEROV()
    got, right = np.array([1.0, -3.0, 5.0]), np.array([2.0, -4.0, 7.0])
    known = ((lost, got), (other, right + 1), (damped, got), (lost, got))
    assert likely_causes(got, right, Evidence(2, alternatives=known)) == (lost, damped)


@pytest.mark.parametrize(("weight", "rank", "cause"), [(2.0, 0, "not-reduced"), (2.0, 1, "ranks-weighted")])
def test_own_part_alone_is_not_reduced_even_if_the_loss_is_scaled(weight: float, rank: int, cause: str) -> None:
    own = np.array([[8.0, 4.0, -1.0, 3.0, 5.0], [-4.0, 16.0, 2.0, 1.0, 7.0]])
    assert first(weight * own[rank], own.mean(axis=0), Evidence(2, local=own[0], parts=own)).id == cause


def test_an_element_updated_by_zero_is_not_told_by_a_gradient_that_is_zero_there() -> None:
    """Weight decay moves it, as a rank's own gradient of zero would."""
    idle, right = np.array([[0.5, 1.0], [2.0, 4.0]]), np.array([[0.75, 1.5], [2.5, 4.5]])
    own, got = np.array([[0.5, 1.75], [2.75, 4.25]]), np.array([[0.5, 1.5], [2.5, 4.5]])
    evidence = Evidence(2, alternatives=((updates.UPDATED_BY_OWN(), own),), before=2 * idle, idle=idle)
    assert first(got, right, evidence) == values.ZERO().among(Elements(1, 4, 0, 0))
