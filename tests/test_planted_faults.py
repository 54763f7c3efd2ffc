"""Which faults are planted together."""

from __future__ import annotations

import pytest
from failed_verdicts import failed
from planted.faults_together import alone, fit_together, reference
from planted.score import Combination

from ddpcheck import Session
from ddpcheck.causes import Kind, gradients, programs, updates, values
from ddpcheck.verdict import Finding
from ddpcheck_properties.replicas.batch_norm_steps import check_steps_with_batch_norm_follow_the_optimizer
from ddpcheck_properties.replicas.saved_states import check_resumed_training_matches_one_process
from ddpcheck_properties.replicas.trajectories import check_clipping_uses_the_global_gradient_norm


def test_faults_are_not_planted_together_if_one_leaves_out_the_calls_of_another() -> None:
    known = {fault.name: fault for fault in alone().values()}
    reduces, in_buckets = known["tensor-names-differ"], known["none-grads-skipped-in-flatten"]
    clips, around = known["clipped-tensor-by-tensor"], known["unused-grad-zero-not-none"]
    assert not fit_together([reduces, in_buckets])
    assert fit_together([reduces, clips])
    assert fit_together([in_buckets, clips])
    assert fit_together([in_buckets, around])


def test_mistake_in_adam_hides_no_mistake_in_checkpoints() -> None:
    known = {fault.name: fault for fault in alone().values()}
    both = reference([known["adam-is-amsgrad"], known["state-in-a-window-is-the-last-one"]])
    with Session(both, 2, effort=1) as session, pytest.raises(Finding) as found:
        check_resumed_training_matches_one_process(session)
    assert updates.STATE_OF_CONSTRUCTION.explains(found.value.diagnosis.causes)


def test_wrong_gradients_hide_no_mistake_of_the_optimizer() -> None:
    known = {fault.name: fault for fault in alone().values()}
    both = reference([known["reduced-by-the-next-backward"], known["weight-decay-beside-the-gradient"]])
    with Session(both, 2) as session, pytest.raises(Finding) as found:
        check_steps_with_batch_norm_follow_the_optimizer(session)
    assert updates.DECAY_DECOUPLED.explains(found.value.diagnosis.causes)


@pytest.mark.parametrize(
    ("clips", "cause"),
    [("clipped-by-value", updates.CLIPPED_BY_ELEMENT), ("norm-of-the-largest-rank", updates.NORM_LARGEST_OF_RANKS)],
)
def test_gradients_that_are_not_reduced_hide_no_mistake_in_clipping(clips: str, cause: Kind) -> None:
    known = {fault.name: fault for fault in alone().values()}
    both = reference([known["reduced-in-a-group-of-one"], known[clips]])
    with Session(both, 2) as session, pytest.raises(Finding) as found:
        check_clipping_uses_the_global_gradient_norm(session)
    assert cause.explains(found.value.diagnosis.causes)


def test_right_clips_of_wrong_gradients_are_not_told() -> None:
    known = {fault.name: fault for fault in alone().values()}
    with Session(reference([known["reduced-in-a-group-of-one"]]), 2) as session, pytest.raises(Finding) as found:
        check_clipping_uses_the_global_gradient_norm(session)
    assert values.NOT_REDUCED.explains(found.value.diagnosis.causes)


def test_a_fault_with_another_registered_cause_counts_as_a_miss_of_its_time() -> None:
    ended = failed("programs", "programs", programs.WINDOW_ENDED_BY(operations=("zero_grad()",)))
    told, was = (programs.WINDOW_ENDED_BY.id,), (gradients.SYNCHRONISED_INSIDE_NO_SYNC.id,)
    one = Combination(1, ("zero-grad-ends-no-sync",), was, (ended,), 1.0, told)
    assert one.alone
    assert not one.right_when_new
