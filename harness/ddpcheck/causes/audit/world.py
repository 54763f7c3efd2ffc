"""The world of ranks is not the one that was started, or ranks part."""

from ..cause import Kind

WORLD_IS_ONE = Kind(
    "world-is-one",
    "Each of the {ranks} processes is a world of its own.",
    because="No process group of {ranks} ranks was made, so nothing is synchronised and each rank trains alone.",
    look="the condition for init_process_group, and the variables RANK, WORLD_SIZE and LOCAL_RANK that torchrun sets",
    certainty="certain",
    ranks=int,
)
WORLD_HAS_ANOTHER_SIZE = Kind(
    "world-has-another-size",
    "The process group has {size} ranks; {ranks} processes were started.",
    look="the world_size that the script gives to init_process_group at {line}",
    certainty="certain",
    size=int,
    ranks=int,
    line=str,
)
SCRIPT_RAISED = Kind(
    "script-raised",
    "{ranks:Rank #|Ranks #} raised {kind}.",
    look="{line}",
    certainty="certain",
    ranks=tuple[int, ...],
    kind=str,
    line=str,
)
COLLECTIVE_IN_RANK_BRANCH = Kind(
    "collective-in-rank-dependent-branch",
    "{ranks:Rank # calls|Ranks # call} {operation} at {line}; the other ranks do not.",
    because="The next collective of the other ranks is paired with it, or the ranks wait for one another for ever.",
    look="{condition}, which must hold on all ranks or on none",
    operation=str,
    ranks=tuple[int, ...],
    line=str,
    condition=str,
)
BACKWARD_SKIPPED = Kind(
    "backward-skipped-on-some-ranks",
    "{ranks:Rank # makes|Ranks # make} no backward in step {step}, at {line}; the other ranks do.",
    because="The backward passes of the others wait for its gradients, and get those of another batch, or none.",
    look="{condition}: all ranks must agree on what decides it, such as a loss that is not finite, or a limit",
    certainty="certain",
    ranks=tuple[int, ...],
    step=int,
    line=str,
    condition=str,
)
RANKS_PART = Kind(
    "ranks-part",
    "The ranks part at {condition}.",
    because="After {before}, {ranks:rank # goes|ranks # go} on to {line}, and another rank to {other}. They then "
    "wait for one another, or pair calls that do not belong together.",
    look="the value that decides it: reduce it over the ranks first",
    before=str,
    ranks=tuple[int, ...],
    line=str,
    other=str,
    condition=str,
)
RANKS_WAIT = Kind(
    "ranks-wait-for-each-other",
    "{ranks:Rank # waits|Ranks # wait} for ever at {lines}.",
    look="the collective that the other ranks call instead",
    ranks=tuple[int, ...],
    lines=tuple[str, ...],
)
STOP_DECIDED_PER_RANK = Kind(
    "stop-decided-per-rank",
    "{ranks:Rank #|Ranks #} stopped after {steps:# step|# steps}; the others went on.",
    because="Each rank decides by a value of its own, such as its own loss, or one rank decides for itself alone.",
    look="{condition}: let all ranks decide by one value: reduce it over the ranks, or broadcast one rank's decision",
    ranks=tuple[int, ...],
    steps=int,
    condition=str,
)
