"""Checkpoints of training runs: which ranks write and read them, and where an interrupted run resumes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from ddpcheck import assertions
from ddpcheck.causes import training
from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, ReplicaMethod, needs
from ddpcheck.counted_nouns import ranks_named
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.training import OF_A_SPECIAL_RUN, OF_OTHER_EPOCHS, OF_OTHER_SAMPLES
from ddpcheck.hypotheses.training.checkpoints import OtherEpochs, OtherSamples, Samples, SpecialRun
from ddpcheck.job import Job, Train
from ddpcheck.oracle.training_runs import Run, plan_of
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding

from ..drawing import all_or_every_second, for_all, for_each
from ..judges import Judge
from .best_weights import holds_the_best
from .drawn_runs import run_job, runs, with_a_frozen_layer, with_other_optimizers
from .final_state import ends_where_one_process_ends, explained
from .learning_rates import rates_follow
from .losses import reports_the_loss

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpcheck.session import Session

WHOLE, CUT, RESUMED = 0, 1, -1
"""Positions in a Job of cut_operations; each run after the interrupted one resumes the run before it."""
MANY = 11
"""Epochs; the last ones come first if names are sorted as text."""
CHECKPOINT = needs.trainer.trainer_features("checkpoint")


@law("trainer", needs.trainer, needs.replica.optimizers("sgd"), CHECKPOINT)
def check_resumed_training_run_matches_one_process(session: Session) -> None:
    """A run that is interrupted after an epoch, even the last, and resumes from its checkpoint ends where an uninterrupted
    run of one process ends.

    This covers parameters, losses, the order of samples, learning rates and best weights, on every rank. A finished run may
    be continued for more epochs: its schedule is then that of all epochs.
    """
    world, promised = session.world_size, session.capabilities
    for_all(
        session,
        cut_runs(world, promised),
        resumed_right(promised),
        examples=all_or_every_second(session, _cuts(session)),
        share=0.2,
    )


@law(
    "trainer",
    needs.trainer,
    needs.replica.optimizers("sgd"),
    CHECKPOINT,
    needs.trainer.trainer_features("exact_resume"),
)
def check_resumed_training_run_is_bitwise_identical(session: Session) -> None:
    """A run that is interrupted and resumes from its checkpoint ends with the same bits as an uninterrupted run."""
    world, promised = session.world_size, session.capabilities
    judge = resumed_right(promised, bits=True)
    examples = [_cut(session), *with_other_optimizers(_cut(session), promised)]
    if "accumulation" in promised.trainer.trainer_features:
        examples.append(_cut(session, micro_batches=3, stops=(2,)))
    for_all(session, cut_runs(world, promised), judge, examples=examples, share=0.2)


@law(
    "trainer",
    needs.trainer,
    needs.replica.optimizers("sgd"),
    CHECKPOINT,
    needs.trainer.trainer_features("checkpoint_on_rank_0"),
)
def check_rank_0_checkpoint_decides_where_all_ranks_resume(session: Session) -> None:
    """If only rank 0 sees the checkpoint, all ranks resume from it. If there is no checkpoint, all ranks start from the
    beginning.
    """
    jobs = [_cut(session), _cut(session, rank_0_only=True), _cut(session, begins=True)]
    for_each(session, jobs, resumed_right(session.capabilities))


@law("trainer", needs.trainer, needs.replica.optimizers("sgd"), CHECKPOINT)
def check_checkpoints_tolerate_a_slow_disk_on_rank_0(session: Session) -> None:
    """With a slow disk on rank 0, runs that write checkpoints or resume from them end as with a fast disk."""
    for_each(session, [_cut(session), _cut(session, slow_disk=True)], resumed_right(session.capabilities))


@law("trainer", needs.trainer, needs.replica.optimizers("sgd"), CHECKPOINT, needs.ranks(2))
def check_checkpoint_files_have_one_writer(session: Session) -> None:
    """No file in a checkpoint folder is opened for writing by two ranks, except for files that stay empty."""
    plan = Train(epochs=2, folder="checkpoint", keep_best="best" in session.capabilities.trainer.trainer_features)
    job = run_job(session.world_size, session.capabilities, 4 * session.world_size, plan)
    for_each(session, [job], _each_file_has_one_writer)


@st.composite
def cut_runs(draw: DrawFn, world_size: int, promised: Capabilities) -> Job:
    """One run of two or three epochs, and the same run interrupted once or twice and resumed, with all or some other
    promised features.
    """
    several = ("schedule", "best"), ("accumulation",), (), ("schedule", "best", "accumulation")
    features = promised.trainer.trainer_features & set(draw(st.sampled_from(several)))
    job = draw(runs(world_size, promised, features=features))
    stops = draw(st.sampled_from(((1,), (2,), (1, 2))))
    plan = replace(plan_of(job), epochs=draw(st.integers(stops[-1] + 1, 3)))
    return replace(job, operations=cut_operations(plan, *stops))


def _cuts(session: Session) -> list[Job]:
    """Runs with all features, also with micro-batches and other optimizers, and some whose best epoch may be early."""
    features = session.capabilities.trainer.trainer_features
    cuts = [_cut(session), _cut(session, stops=(3,)), *with_other_optimizers(_cut(session), session.capabilities)]
    if "accumulation" in features:
        cuts += [_cut(session, micro_batches=3, stops=(2,)), _cut(session, micro_batches=2, stops=(1, 2))]
    if session.world_size <= 2:  # they take long, and more ranks find no more faults
        cuts += [_cut_twice(session), *_extended(session), *with_a_frozen_layer(_cut(session), session.capabilities)]
    if "best" not in features:
        return cuts
    plan = Train(epochs=4, keep_best=True)
    job = run_job(session.world_size, session.capabilities, 4 * session.world_size, plan, lr=1.0)
    wild = [replace(job, seed=seed, operations=cut_operations(plan, 2, 3)) for seed in range(3)]
    if "accumulation" in features:
        wild.append(replace(job, operations=cut_operations(replace(plan, batch_size=1, micro_batches=3), 2, 3)))
    return [*cuts, *wild]


def _cut_twice(session: Session) -> Job:
    """Interrupted after the first of many epochs, and again before the last."""
    features = session.capabilities.trainer.trainer_features
    plan = Train(epochs=MANY, schedule="linear" if "schedule" in features else "constant", keep_best="best" in features)
    job = run_job(session.world_size, session.capabilities, 2 * session.world_size, plan, momentum=0.5)
    return replace(job, operations=cut_operations(plan, 1, MANY - 1))


def _extended(session: Session) -> Iterator[Job]:
    """A finished run that is continued for one more epoch, with each promised schedule."""
    schedules: tuple[Literal["constant", "linear"], ...] = ("constant", "linear")
    for schedule in schedules[: 1 + ("schedule" in session.capabilities.trainer.trainer_features)]:
        plan = Train(epochs=3, schedule=schedule)
        job = run_job(session.world_size, session.capabilities, 4 * session.world_size, plan, momentum=0.5)
        shorter = replace(plan, epochs=2, folder="checkpoint")
        yield replace(job, operations=(plan, shorter, replace(plan, folder="checkpoint", resume=True)))


def _cut(
    session: Session,
    *,
    micro_batches: int = 1,
    rank_0_only: bool = False,
    slow_disk: bool = False,
    begins: bool = False,
    stops: tuple[int, ...] = (1,),
) -> Job:
    """stops: the epoch, of three, after which it is interrupted. begins: there is no checkpoint to resume from."""
    features = session.capabilities.trainer.trainer_features
    linear, best = "schedule" in features, "best" in features
    schedule: Literal["linear", "constant"] = "linear" if linear else "constant"
    norm = 0.25 if micro_batches > 1 and session.capabilities.has(ReplicaMethod.CLIPPING) else None
    plan = Train(epochs=3, micro_batches=micro_batches, schedule=schedule, keep_best=best, max_norm=norm)
    world = session.world_size
    # one of the last micro-batches is short; with three, the last window is short, too
    samples = {1: 4, 2: 7, 3: 9}[micro_batches] * world
    job = run_job(world, session.capabilities, samples, plan, momentum=0.5)
    operations = cut_operations(plan, *stops, rank_0_only=rank_0_only, slow_disk=slow_disk)
    if begins:
        operations = (plan, replace(plan, folder="elsewhere", stop_after=1), replace(plan, folder="empty", resume=True))
    return replace(job, operations=operations)


def cut_operations(plan: Train, *stops: int, rank_0_only: bool = False, slow_disk: bool = False) -> tuple[Train, ...]:
    """The whole run; the run interrupted after some epochs, perhaps resumed and interrupted again; the resumed run."""
    saving = replace(plan, folder="checkpoint", rank_0_only=rank_0_only, slow_disk=slow_disk)
    runs = [replace(saving, stop_after=stop, resume=number > 0) for number, stop in enumerate(stops)]
    return plan, *runs, replace(saving, resume=True)


def resumed_right(promised: Capabilities, *, bits: bool = False) -> Judge:
    """The judge of a Job of cut_operations. bits: its end also equals that of the whole run, to the bit."""

    def judge(job: Job, trace: Trace) -> None:
        special = SpecialRun(plan_of(job, RESUMED), trace)
        with explained(lambda: first_cause(OF_A_SPECIAL_RUN, special)):
            run, last = _resumed_run(promised, job, trace)
            if bits:
                _same_bits(trace, run, last)
            else:
                _ends_as_one_process(run)

    return judge


def _resumed_run(promised: Capabilities, job: Job, trace: Trace) -> tuple[Run, int]:
    """The run that was resumed last, and its position. Its samples are those of the whole run."""
    assertions.completed(trace)
    cut, resumed = (plan_of(job, position) for position in (RESUMED - 1, RESUMED))
    first = (cut.stop_after or cut.epochs) if cut.folder == resumed.folder else 0
    last = len(job.operations) + RESUMED
    uninterrupted, after = (_samples(trace, position) for position in (WHOLE, last))
    for rank in range(job.world_size):
        _same_epochs(uninterrupted, after, rank, first, plan_of(job, WHOLE).epochs)
    before = [loss for position in range(CUT, last) for loss in trace.values(position, "losses")[0]]
    return Run.told(job, trace, promised, last, first, before=before[:first]), last


def _ends_as_one_process(run: Run) -> None:
    whole, cut = (plan_of(run.job, position) for position in (WHOLE, RESUMED - 1))
    if whole.schedule == "linear" and cut.epochs < whole.epochs:  # the shorter run had other rates
        with explained(lambda: (training.schedules.SCHEDULE_OF_SHORTER_RUN(),)):
            rates_follow(run)
        return
    ends_where_one_process_ends(run)
    reports_the_loss(run)
    rates_follow(run)
    if whole.keep_best:
        holds_the_best(run)


def _samples(trace: Trace, position: int) -> Samples:
    return [[epoch.tolist() for epoch in epochs] for epochs in trace.values(position, "indices")]


def _same_epochs(whole: Samples, resumed: Samples, rank: int, first: int, epochs: int) -> None:
    """resumed: the samples of the run that was resumed with epoch `first`."""
    trained = len(resumed[rank])
    if trained != epochs - first:
        where = (
            f"continued with epoch {first}" if first else "started from the beginning, since there was no checkpoint"
        )
        raise Finding(
            Diagnosis(
                f"rank {rank} trained {trained} of {epochs} epochs after resuming, but should have {where}: "
                f"{epochs - first} epochs",
                first_cause(OF_OTHER_EPOCHS, OtherEpochs(first, trained - (epochs - first))),
            )
        )
    for epoch in range(first, epochs):
        of = OtherSamples(whole, resumed, rank, epoch, first)
        if of.got != of.should:
            causes = first_cause(OF_OTHER_SAMPLES, of)
            assertions.equal(of.got, of.should, f"samples of epoch {epoch} after resuming", rank, causes)


def _same_bits(trace: Trace, run: Run, last: int) -> None:
    for rank in range(run.job.world_size):
        for what, name in (("parameters", "parameter"), ("best", "best")):
            whole, resumed = (trace.values(position, what)[rank] for position in (WHOLE, last))
            for key, expected in (whole or {}).items():
                assertions.same_array(resumed[key], expected, f"{name} {key} after resuming", rank)
        whole, resumed = (trace.values(position, "losses")[rank] for position in (WHOLE, last))
        assertions.equal(resumed, whole[run.first :], "losses after resuming", rank)


def _each_file_has_one_writer(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    written = trace.values(0, "written")
    for name in sorted({name for files in written for name, content in files.items() if content}):
        ranks = [rank for rank, files in enumerate(written) if name in files]
        assertions.that(
            len(ranks) == 1,
            f"the file {name} of the checkpoint was opened for writing by {ranks_named(ranks)}, but should "
            "be by one rank only",
            training.resumes.EVERY_RANK_SAVES(),
        )
