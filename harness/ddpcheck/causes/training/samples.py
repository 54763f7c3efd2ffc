"""Why a training run uses or reports other samples."""

from ..cause import Kind

REPORTED_INDICES_WRONG = Kind(
    "reported-indices-wrong",
    "No rank reports sample {sample} in epoch {epoch}: reported indices may not be those used.",
    epoch=int,
    sample=int,
)

ARGUMENTS_CHANGED_BY_RUN = Kind(
    "arguments-changed-by-run",
    "The run changes its arguments, so the next run starts from different ones.",
    because="Parameters share memory with the initial values, or data are scaled in place.",
)
SHARDS_OVERLAP_OR_TAIL_LOST = Kind(
    "shards-overlap-or-tail-lost", "The shards of the ranks overlap, or the tail is lost."
)
RUN_NOT_SHARDED = Kind("run-not-sharded", "The samples are not sharded between the ranks.")
EPOCHS_COUNTED_ROUND = Kind(
    "epochs-counted-round",
    "Some epoch numbers do not reach the sampler, or epoch numbers wrap around.",
    certainty="possible",
)
