"""Parameters without gradient in a backward, on one rank, some or all, different from step to step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, ReplicaMethod, needs
from ddpcheck.job import Backward, Clip, Job, Operation, OptimizerSpec, Step, ZeroGrad
from ddpcheck.models.spec import Layer, Linear, ModelSpec, Scale

from .. import explicit_examples
from ..drawing import for_all, for_each
from ..explicit_examples import fitting
from ..strategies import (
    ADAM,
    GRADIENTS,
    MOMENTUM,
    PARAMETERS,
    SEEDS,
    branching,
    branching_models,
    choice,
    shards,
    training_job,
)
from .comparison import as_one_process
from .shown_values import by_shown_values

if TYPE_CHECKING:
    from ddpcheck.session import Session

WIDE = 160
"""A branch of 25,600 elements."""
SYNCHRONISED = needs.replica.unused_parameters("synchronised")


@law("unused", needs.replica, needs.replica.model_features("branch"), SYNCHRONISED, needs.ranks(2))
def check_unused_parameters_on_some_ranks_count_as_zero(session: Session) -> None:
    """A parameter without gradient on some ranks counts as zero there, and every rank gets the exact combined gradient.

    Branches have equal shapes, so that one branch's gradient can pass for another's. Branches of another chain share a
    weight, which every rank uses in other places.
    """
    world, promised = session.world_size, session.capabilities
    jobs = [
        explicit_examples.branches(world, "a", ("a", "")),
        explicit_examples.branches(world, "ab", ("a", "b")),
        explicit_examples.branches(world, "abc", ("abc", "ac")),
        explicit_examples.branches(world, "ab", ("ab", "ab"), ("b", "a"), ("ab", "ab")),
        explicit_examples.branches(world, "a", ("a", "a"), ("a", ""), width=WIDE),
        explicit_examples.branches(world, "a", *[("a", "a")] * 4, *[("a", "")] * 4),  # buffers that are filled in turn
        _tied_through_branches(world),
    ]
    for_all(session, branched(world, promised), as_one_process(promised), examples=fitting(session, jobs))


@law("unused", needs.replica, needs.replica.model_features("branch"), SYNCHRONISED)
def check_globally_unused_parameters_have_promised_gradient(session: Session) -> None:
    """A parameter that no rank used since zero_grad has the promised gradient, zero or None. All other gradients are exact."""
    world, promised = session.world_size, session.capabilities
    jobs = [
        explicit_examples.branches(world, "a", ("",), ("a",), ("",)),
        explicit_examples.branches(world, "ab", ("a",), ("b",)),
    ]
    jobs.append(_among_many(world))
    for_all(session, branched(world, promised, alike=True), as_one_process(promised), examples=fitting(session, jobs))


@law(
    "unused",
    needs.replica,
    needs.replica.model_features("branch"),
    SYNCHRONISED,
    needs.replica.unused_gradient("none"),
    needs.replica.optimizers("sgd"),
)
def check_globally_unused_parameters_do_not_move(session: Session) -> None:
    """A step neither moves a parameter that no rank used, whatever the momentum and weight decay, nor changes its optimizer
    state.

    A step right after zero_grad() moves no parameter, and training continues as if that step had not happened. A step right
    after zero_gradients() does not move parameters that had no gradient before.
    """
    world, promised = session.world_size, session.capabilities
    jobs = [explicit_examples.branches(world, "a", ("a",), ("",), ("a",), optimizer=MOMENTUM)]
    jobs.append(explicit_examples.branches(world, "a", ("a",), ("",), ("",), ("a",), optimizer=ADAM))
    between = ZeroGrad(), Step(), *PARAMETERS
    jobs += [replace(job, operations=(*job.operations, *between, *job.operations)) for job in jobs]
    if promised.has(ReplicaMethod.ZEROES_GRADIENTS):  # zeros for existing gradients; the branch has none
        used_once = explicit_examples.branches(world, "a", ("a",), ("",), optimizer=MOMENTUM)
        zeros = ZeroGrad(to_zeros=True), *GRADIENTS, Step(), *PARAMETERS
        jobs.append(replace(used_once, operations=(*used_once.operations, *zeros)))
    drawn, examples = branched(world, promised, optimizer=MOMENTUM), fitting(session, jobs)
    for_all(session, drawn, as_one_process(promised), examples=examples, further=by_shown_values(session))


@law(
    "unused",
    needs.replica,
    needs.replica.model_features("branch"),
    SYNCHRONISED,
    needs.replica.clipping,
    needs.replica.optimizers("sgd"),
)
def check_clipping_ignores_unused_parameters(session: Session) -> None:
    """A parameter that no rank used adds nothing to the clipping norm. All other parameters are still clipped."""
    world = session.world_size
    plain = OptimizerSpec(lr=0.05)
    job = explicit_examples.branches(world, "ab", ("a",), ("",), ("b",), optimizer=plain)
    operations = [each for op in job.operations for each in ((Clip(0.1), op) if isinstance(op, Step) else (op,))]
    jobs = [replace(job, operations=tuple(operations))]
    for_each(session, fitting(session, jobs), as_one_process(session.capabilities))


@law("unused", needs.replica, needs.replica.model_features("branch"), SYNCHRONISED, needs.replica.no_sync)
def check_parameters_used_only_inside_no_sync_are_synchronised(session: Session) -> None:
    """A parameter used only in an earlier micro-batch, inside no_sync, is synchronised with the last micro-batch."""
    world, promised = session.world_size, session.capabilities
    operations: list[Operation] = [
        ZeroGrad(),
        Backward(shards([2] * world), sync=False, branches=(("a",),) * world),
        Backward(shards([2] * world, 2 * world), branches=(("b",),) * world),
        *GRADIENTS,
    ]
    job = training_job(world, branching(2, "ab"), operations)
    drawn = branched(world, promised, accumulating=True)
    for_all(session, drawn, as_one_process(promised), examples=fitting(session, [job]))


def _tied_through_branches(world_size: int) -> Job:
    """Branch a also uses fc1's weight, and branch c that of branch_b: on even ranks, then on odd ones."""
    even, odd = ("a", "b"), ("c",)
    operations: list[Operation] = []
    for number, pair in enumerate(((even, odd), (odd, even), (("b", "c"), ()))):
        active = tuple(pair[rank % 2] for rank in range(world_size))
        backward = Backward(shards([2] * world_size, 2 * number * world_size), branches=active)
        operations += [ZeroGrad(), backward, *GRADIENTS]
    layers = (
        Linear("fc1", 2, 2),
        Linear("branch_a", 2, 2, branch="a", uses="fc1"),
        Linear("branch_b", 2, 2, branch="b"),
        Linear("branch_c", 2, 2, branch="c", uses="branch_b"),
    )
    return training_job(world_size, ModelSpec(layers, loss="linear"), operations)


def _among_many(world_size: int) -> Job:
    """Unused parameters whose numbers a mask of 8 or 256 bits confuses with used ones, or that are beyond the end of
    such a mask.
    """
    layers: list[Layer] = [Linear("fc1", 2, 2), Linear("branch_a", 2, 2, branch="a")]
    layers += [Scale(f"scale{number}", 2) for number in range(270)]
    layers.append(Linear("last_a", 2, 2, branch="a"))
    operations: list[Operation] = [Backward(shards([2] * world_size)), *GRADIENTS]
    return training_job(world_size, ModelSpec(tuple(layers), loss="linear"), operations)


@st.composite
def branched(
    draw: DrawFn,
    world_size: int,
    capabilities: Capabilities,
    *,
    alike: bool = False,
    accumulating: bool = False,
    optimizer: OptimizerSpec | None = None,
) -> Job:
    """One to three backwards, each with branches drawn for every rank (`alike`: for all ranks together).

    accumulating: all but the last inside no_sync. With an optimizer, each backward is followed by a step.
    """
    model = draw(branching_models(capabilities, exact=optimizer is None))
    taken = choice(tuple(_subsets(model.branches)))
    count = draw(choice((2, 1, 3)))
    operations: list[Operation] = [ZeroGrad()]
    for number in range(count):
        active = (draw(taken),) * world_size if alike else tuple(draw(taken) for _ in range(world_size))
        sync = not accumulating or number == count - 1
        operations += [Backward(shards([2] * world_size, 2 * world_size * number), sync=sync, branches=active)]
        operations += GRADIENTS if sync else ()
        operations += [Step(), *PARAMETERS] if optimizer else []
        operations += [ZeroGrad()] if not accumulating else []
    exact = optimizer is None
    return training_job(world_size, model, operations, optimizer, exact=exact, seed=draw(SEEDS))


def _subsets(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = [()]
    for name in names:
        found += [(*subset, name) for subset in found]
    return found
