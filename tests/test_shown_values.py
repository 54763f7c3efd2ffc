"""Operations are judged by the values that ranks showed before them, so that one mistake hides no other."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from in_threads import ThreadedSession

from ddpcheck.causes import Kind, gradients, replicas, updates, values
from ddpcheck.causes import programs as causes
from ddpcheck.verdict import Finding
from ddpcheck_implementations.faulty import PlainReplica, faults, unusual
from ddpcheck_implementations.faulty.base import PROMISED, facets
from ddpcheck_properties import CHECKS
from ddpcheck_properties.replicas import programs, shown_values
from ddpcheck_properties.replicas.program_grammar import training_program

CHECK = {check.name: check for check in CHECKS}
MADE: dict[str, Any] = {found.name: found.made for found in faults()}
RIGHT = [PlainReplica, *(each.made for each in unusual() if each.adapter.capabilities == PROMISED)]


def session_of(*names: str, told: frozenset[str] = frozenset()) -> Any:
    """Two ranks of a replica with these faults."""
    made = type("Replica", tuple(MADE[name] for name in names) or (PlainReplica,), {})
    return ThreadedSession(partial(facets, made), 2, PROMISED, told=told)


def finding_of(check: str, session: Any) -> Finding:
    with pytest.raises(Finding) as caught:
        CHECK[check].function(session)
    return caught.value


@pytest.mark.parametrize("replica", RIGHT, ids=lambda replica: replica.__name__)
def test_right_replicas_go_on_from_all_that_they_show(replica: Any) -> None:
    session = ThreadedSession(partial(facets, replica), 2, PROMISED)
    for words in programs.REGRESSIONS:
        job = shown_values.looking_everywhere(training_program(2, PROMISED, words), PROMISED)
        assert job is not None
        assert list(shown_values.wrong_operations(job, session.run(job), PROMISED)) == []


@pytest.mark.parametrize(
    ("check", "faults_together", "known", "told"),
    [
        ("check_sgd_matches_one_process", ("initial-values-averaged", "momentum-dampened"),
         gradients.LOSS_OF_MEAN_INITIAL, updates.MOMENTUM_DAMPENED),
        ("check_resumed_training_matches_one_process", ("parameters-gathered-into-gradient-buffer", "scalar-buffers-not-saved"),
         gradients.PARAMETER_ADDED, updates.NOT_LOADED),
        ("check_random_training_programs_match_one_process", ("own-part-of-the-state-loaded", "saving-takes-clipping-back"),
         updates.NOT_LOADED, causes.CHANGES_GRADIENTS),
        ("check_uneven_batches_count_equally_per_rank", ("initial-values-averaged", "mean-over-no-samples"),
         gradients.LOSS_OF_MEAN_INITIAL, causes.MEAN_OF_NO_SAMPLES),
    ],
    ids=["step", "resume", "save", "backward"],
)  # fmt: skip
def test_another_cause_is_told_if_other_checks_have_told_the_first(
    check: str, faults_together: tuple[str, ...], known: Kind, told: Kind
) -> None:
    first = finding_of(check, session_of(*faults_together))
    assert known.explains(first.diagnosis.causes)
    second = finding_of(check, session_of(*faults_together, told=frozenset({known.id})))
    assert told.explains(second.diagnosis.causes)
    assert second.diagnosis.details[-1].startswith("a second mistake: ")
    alone = finding_of(check, session_of(faults_together[0], told=frozenset({known.id})))
    assert not told.explains(alone.diagnosis.causes)


OWN, MEAN, STALE = replicas.OWN_INITIAL_VALUE, gradients.LOSS_OF_MEAN_INITIAL, gradients.STALE
PROGRAMS, RICH = (
    "check_random_training_programs_match_one_process",
    "check_long_programs_on_rich_models_match_one_process",
)


@pytest.mark.parametrize(
    ("check", "planted", "known"),
    [
        ("check_checkpoint_restores_running_statistics", ("buffers-not-broadcast",), (OWN,)),
        ("check_optimizer_steps_every_element_of_large_tensors", ("clip-before-reduce",), (updates.NORM_OF_OWN,)),
        (PROGRAMS, ("initial-values-averaged", "clip-before-reduce"), (MEAN, updates.NORM_OF_OWN)),
        (RICH, ("unused-param-strands-bucket",), (values.NOT_REDUCED,)),
        (RICH, ("zeroes-what-it-began-with",), (gradients.NOT_RESET,)),
        ("check_sgd_matches_one_process", ("initial-values-averaged",), (MEAN,)),
        ("check_resumed_training_matches_one_process", ("momentum-in-float16",), (updates.MOMENTUM_IN_FLOAT16,)),
        (
            RICH,
            ("evaluation-moves-statistics", "statistics-of-the-largest-batch"),
            (causes.EVALUATION_MOVES_STATISTICS, updates.STATISTICS_FROM_RANK),
        ),
        ("check_checkpoint_restores_running_statistics", ("broadcast-by-the-first-forward",), (OWN,)),
        ("check_layers_unfrozen_later_are_synchronised", ("stale-gradient",), (STALE,)),
        (PROGRAMS, ("stale-gradient",), (STALE,)),
        (RICH, ("stale-gradient",), (STALE,)),
        (RICH, ("optimizer-step-inside-backward",), (replicas.BACKWARD_MOVES_PARAMETERS,)),
        (
            PROGRAMS,
            ("reduced-in-a-group-of-one", "norm-is-the-largest-element"),
            (values.NOT_REDUCED, updates.NORM_IS_LARGEST, updates.CLIPPED_BY_LARGEST),
        ),
    ],
)
def test_one_mistake_is_not_told_as_two(check: str, planted: tuple[str, ...], known: tuple[Kind, ...]) -> None:
    found = finding_of(check, session_of(*planted, told=frozenset(kind.id for kind in known)))
    assert not any(detail.startswith("a second mistake: ") for detail in found.diagnosis.details)
