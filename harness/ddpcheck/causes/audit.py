"""Why a training script on several ranks is not the run of one process: told by an audit, with the script's own line."""

from .cause import Kind

# ------------------------------------------------------------------------------------------------- the world and its run

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
    look="the condition around {line}, which must hold on every rank or on none",
    operation=str,
    ranks=tuple[int, ...],
    line=str,
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
    because="Each rank decides by a value of its own, such as its own loss.",
    look="the condition that ends training, and reduce its value over the ranks first",
    ranks=tuple[int, ...],
    steps=int,
)

# ------------------------------------------------------------------------------------------------------------------ data

SAME_DATA = Kind(
    "same-data-on-every-rank",
    "Every rank reads the same data.",
    because="{how}",
    look="how samples are shared out at {line}, as a DistributedSampler does for a DataLoader",
    how=str,
    line=str,
)
SHARDS_OVERLAP = Kind(
    "shards-overlap",
    "{count} of {size} samples of an epoch {count:goes|go} to more than one rank.",
    because="{how}",
    look="the split and the sampler behind the loader made at {line}",
    count=int,
    size=int,
    how=str,
    line=str,
)
SET_EPOCH_NOT_CALLED = Kind(
    "set-epoch-not-called",
    "Every epoch has the same order: set_epoch is not called.",
    because="Pass {first} and pass {second} over the loader both have epoch {epoch}.",
    look="sampler.set_epoch(epoch) before the loop over the loader made at {line}",
    certainty="certain",
    first=int,
    second=int,
    epoch=int,
    line=str,
)
SAMPLES_NEVER_USED = Kind(
    "samples-never-used",
    "{count} of {size} samples {count:is|are} in no rank's shard.",
    look="the split of the data behind the loader made at {line}",
    count=int,
    size=int,
    line=str,
)
DIFFERENT_NUMBERS_OF_BATCHES = Kind(
    "different-numbers-of-batches",
    "The ranks get different numbers of batches in an epoch: {counts}.",
    because="The rank with more batches waits for ever, or pairs its collectives with those of the next epoch.",
    look="the shards of the loader made at {line}; DistributedSampler gives equal ones",
    counts=tuple[int, ...],
    line=str,
)

# --------------------------------------------------------------------------------------------- parameters and gradients

DIFFERENT_INITIAL_PARAMETERS = Kind(
    "different-initial-parameters",
    "The ranks start from different parameters, first {parameter}.",
    look="the seed before the model is made, or a broadcast of the parameters from rank 0",
    certainty="certain",
    parameter=str,
)
WEIGHTS_LOADED_ON_ONE_RANK = Kind(
    "weights-loaded-on-one-rank",
    "{ranks:Only rank # loads|Only ranks # load} weights, at {line}.",
    because="The model was wrapped before, and the wrapper sends parameters to the other ranks only once.",
    look="{line}: load on every rank, or before the model is wrapped",
    certainty="certain",
    ranks=tuple[int, ...],
    line=str,
)
PARAMETER_NOT_SYNCHRONISED = Kind(
    "parameter-not-synchronised",
    "The gradient of {parameter} is not synchronised.",
    because="{how}",
    look="where the ranks' gradients are combined before {line}",
    parameter=str,
    how=str,
    line=str,
)
PARAMETER_UNFROZEN = Kind(
    "parameter-unfrozen-after-wrapping",
    "{parameter} was frozen when the model was wrapped, and is trained since.",
    because="DistributedDataParallel synchronises only what needs a gradient when it is made.",
    look="a new wrapper after parameters have been unfrozen",
    certainty="certain",
    parameter=str,
)
PARAMETER_ADDED = Kind(
    "parameter-added-after-wrapping",
    "{parameter} was added after the model was wrapped.",
    because="DistributedDataParallel synchronises only the parameters that are there when it is made.",
    look="a new wrapper after modules have been added",
    certainty="certain",
    parameter=str,
)
MODULE_NOT_WRAPPED = Kind(
    "module-not-wrapped",
    "No parameter of the optimizer made at {line} is in a DDP wrapper.",
    because="Other parameters are, so each rank trains these alone.",
    look="the module whose parameters that optimizer has",
    certainty="certain",
    line=str,
)
FORWARD_BYPASSES_WRAPPER = Kind(
    "forward-bypasses-wrapper",
    "The forward pass does not go through the DDP wrapper.",
    because="Without the wrapper's forward, its backward hooks do not synchronise: {line} uses the module inside.",
    look="model(...) instead of model.module(...) before {line}",
    line=str,
)
LAST_MICRO_BATCH_NOT_SYNCHRONISED = Kind(
    "last-micro-batch-not-synchronised",
    "The last backward before a step is inside no_sync.",
    because="The gradients of the whole window stay on their ranks.",
    look="the condition for no_sync before {line}",
    certainty="certain",
    line=str,
)
COLLECTIVES_PAIR_DIFFERENT = Kind(
    "collectives-pair-different-parameters",
    "Ranks reduce gradients of different parameters together, such as {parameter}.",
    because="Parameters without a gradient are left out, and are not the same on every rank.",
    look="{line}: reduce zeros where there is no gradient",
    parameter=str,
    line=str,
)
GRADIENTS_SUMMED = Kind(
    "gradients-summed",
    "Gradients are summed over the ranks, not averaged.",
    because="Every gradient is {factor:.6g} times that of one process at world size {ranks}.",
    look="the division by the world size after the all-reduce",
    factor=float,
    ranks=int,
)
GRADIENTS_SCALED = Kind(
    "gradients-scaled",
    "Every gradient is {factor:.6g} times that of one process.",
    because="The factor is the same for all parameters and steps. Ranks are combined with weights {weights}.",
    look="what the loss is multiplied by before {line}",
    factor=float,
    weights=str,
    line=str,
)
LOSS_NORMALISED_PER_RANK = Kind(
    "loss-normalised-per-rank",
    "The loss is a mean over each rank's own tokens or samples, and their numbers or weights differ.",
    because="One process weighs the ranks by {wanted}; the script weighs them by {got}.",
    look="{line}: divide a summed loss by the count, or by the sum of the weights, of all ranks",
    wanted=str,
    got=str,
    line=str,
)
CLASS_WEIGHTS_PER_RANK = Kind(
    "class-weights-normalised-per-rank",
    "The loss is divided by the class weights of each rank's own targets, and their sums differ.",
    because="The ranks' targets are {targets} in number, and their weights add up to {sums}.",
    look="{line}: divide a summed loss by the sum of the weights of all ranks' targets",
    targets=str,
    sums=str,
    line=str,
)
LOSS_COUPLES_SAMPLES = Kind(
    "loss-couples-samples",
    "The loss compares samples of a batch, and a rank sees only its own.",
    because="The whole batch's gradient is no combination of the ranks' gradients.",
    look="the loss before {line}: gather what it compares from all ranks",
    line=str,
)
GATHERED_WITHOUT_GRADIENT = Kind(
    "gathered-without-gradient",
    "{operation} at {line} gathers features and drops their gradient.",
    because="Other ranks' features are constants in each rank's loss.",
    look="torch.distributed.nn.functional.all_gather, whose backward gives the gradient back",
    operation=str,
    line=str,
)
REDUCTION_IS_NO_COMBINATION = Kind(
    "reduction-is-no-combination",
    "The reduced gradient of {parameter} is no combination of the ranks' gradients.",
    look="compression, noise or another change between {line} and the step",
    parameter=str,
    line=str,
)
GRADIENTS_ALL_ZERO = Kind(
    "gradients-all-zero",
    "Every gradient is exactly zero in every step.",
    because="The loss does not depend on the parameters, as with cross entropy over a single class.",
    look="the loss before {line}",
    certainty="certain",
    line=str,
)
GRADIENTS_CONSTANT = Kind(
    "gradients-constant",
    "The gradients are the same for different batches.",
    because="{how}",
    look="the loss before {line}: the model's output must be in its graph, computed anew from each batch",
    how=str,
    line=str,
)
REDUCED_GRADIENTS_STALE = Kind(
    "reduced-gradients-stale",
    "The reduction gives the same gradients in every step.",
    because="Each rank's own gradients change from step to step.",
    look="the buffer that is reduced before {line}: it must be filled anew in each step",
    certainty="certain",
    line=str,
)
UNITS_ALIKE = Kind(
    "units-stay-alike",
    "All units of {parameter} have the same weights and get the same gradient.",
    because="Units that start equal stay equal: the layer computes no more than one unit.",
    look="the initial values of {parameter}",
    certainty="certain",
    parameter=str,
)
GRADIENTS_NOT_FINITE = Kind(
    "gradients-not-finite",
    "Gradients are infinite or NaN from step {step} on.",
    look="the loss before {line}",
    certainty="certain",
    step=int,
    line=str,
)
CLIP_BEFORE_REDUCTION = Kind(
    "clip-before-reduction",
    "Gradients are clipped before they are synchronised.",
    because="The norms differ between ranks: {norms} in one step.",
    look="{line}: clip after the reduction",
    certainty="certain",
    norms=str,
    line=str,
)
CLIP_EVERY_MICRO_BATCH = Kind(
    "clip-every-micro-batch",
    "Gradients are clipped {count} times in one accumulation window.",
    look="{line}: clip once, before the step",
    certainty="certain",
    count=int,
    line=str,
)
CLIP_BY_OWN_PART = Kind(
    "clip-by-own-part",
    "Each rank clips by the norm of its own part of the gradients.",
    because="The gradients are split over the ranks, and the norms differ: {norms} in one step.",
    look="{line}: clip by the method of the sharded model, such as FullyShardedDataParallel.clip_grad_norm_",
    certainty="certain",
    norms=str,
    line=str,
)
REPLICAS_DRIFT = Kind(
    "replicas-drift",
    "The ranks' parameters differ from step {step} on, first {parameter}.",
    step=int,
    parameter=str,
)
BUFFERS_DIFFER = Kind(
    "buffers-differ",
    "The ranks use different buffers, first {buffer}.",
    because="No wrapper sends buffers from rank 0, and each rank updates them from its own samples.",
    look="broadcast_buffers, or a reduction where the buffer is updated",
    certainty="certain",
    buffer=str,
)
BUFFER_OF_ONE_RANK = Kind(
    "buffer-of-one-rank",
    "The buffer {buffer} follows rank {rank}'s samples only, as all ranks get that rank's buffer at {line}.",
    because="Each rank updates the buffer from its own samples, and the other ranks' updates are lost.",
    look="a reduction over ranks where the buffer is updated",
    buffer=str,
    rank=int,
    line=str,
)
BATCH_NORM_NOT_CONVERTED = Kind(
    "batch-norm-not-converted",
    "{count:# batch norm|# batch norms}, such as {module}, {count:was|were} not converted, though the script has a conversion.",
    because="They take statistics over one rank's samples.",
    look="a conversion that also reaches nested modules, and the use of its result",
    count=int,
    module=str,
)
MODELS_DIFFER = Kind(
    "evaluated-models-differ",
    "All ranks evaluate {module}, but its parameters differ.",
    because="The parameters are in no optimizer. One rank alone updates them, as with a moving average.",
    look="where {parameter} is updated; each rank must do so",
    module=str,
    parameter=str,
)
OPTIMIZER_HOLDS_REPLACED = Kind(
    "optimizer-holds-replaced-parameters",
    "The optimizer does not hold {parameter}, which is trained.",
    because="It holds {count:# parameter that is|# parameters that are} no longer in the model.",
    look="the order: change the model first, then make the optimizer",
    certainty="certain",
    parameter=str,
    count=int,
)

# ------------------------------------------------------------------------------------------------- accumulation

ACCUMULATION_NOT_DIVIDED = Kind(
    "accumulation-not-divided",
    "The losses of {count} micro-batches are added, not averaged.",
    because="The loss is not multiplied by 1/{count} before backward, and the gradients are not divided after it.",
    look="{line}: (loss / {count}).backward()",
    count=int,
    line=str,
)
LAST_WINDOW_FULL_COUNT = Kind(
    "last-window-divided-by-full-count",
    "The last window has {count:# micro-batch|# micro-batches} and is divided by {full}.",
    look="{line}: divide by the number of micro-batches that the window has",
    certainty="certain",
    count=int,
    full=int,
    line=str,
)
LAST_WINDOW_NOT_STEPPED = Kind(
    "last-window-not-stepped",
    "{count:# micro-batch|# micro-batches} at the end of an epoch {count:is|are} not stepped.",
    because="They are lost, or leak into the next epoch's first window.",
    look="the condition for optimizer.step() at the end of the epoch",
    certainty="certain",
    count=int,
)
COMMUNICATION_EVERY_MICRO_BATCH = Kind(
    "communication-every-micro-batch",
    "Every micro-batch communicates, though the script means to use no_sync.",
    because="All {count} backward passes of a window synchronise.",
    look="where no_sync is entered before {line}: it must be that of the wrapper",
    count=int,
    line=str,
)
NO_SYNC_AROUND_BACKWARD = Kind(
    "no-sync-around-backward-only",
    "no_sync is entered for the backward pass only.",
    because="The wrapper decides in its forward pass, which is outside: every micro-batch communicates.",
    look="{line}: put the forward pass inside no_sync, too",
    certainty="certain",
    line=str,
)

# ----------------------------------------------------------------------------------------- decisions and hyperparameters

LEARNING_RATE_DIFFERS = Kind(
    "learning-rate-differs",
    "The ranks use different learning rates from step {step} on: {values}.",
    look="the scheduler: its metric must be the same on every rank",
    certainty="certain",
    step=int,
    values=str,
)
HYPERPARAMETERS_DIFFER = Kind(
    "hyperparameters-differ",
    "The ranks use different values of {name} from step {step} on: {values}.",
    look="where {name} is chosen; a random choice needs one seed for all ranks",
    certainty="certain",
    name=str,
    step=int,
    values=str,
)
SKIPPED_STEP_DIFFERS = Kind(
    "skipped-step-differs",
    "{ranks:The gradient scaler of rank # skips|The gradient scalers of ranks # skip} step {step}; the others take it.",
    look="{line}: the scaler must see synchronised gradients, before unscale_",
    certainty="certain",
    ranks=tuple[int, ...],
    step=int,
    line=str,
)
SCALER_CHECKS_OWN_GRADIENTS = Kind(
    "scaler-checks-own-gradients",
    "The gradient scaler checks each rank's own gradients for infinities.",
    because="One rank may skip a step and halve its loss scale, while the others do not.",
    look="{line}: synchronise gradients before unscale_",
    certainty="certain",
    line=str,
)
SAME_DRAWS = Kind(
    "same-random-draws-on-every-rank",
    "Every rank draws the same random numbers at {line}.",
    because="{operation} gave the same result on all ranks in {count} of {of} draws, for different samples.",
    look="the seed: add the rank to it after the model is made",
    line=str,
    operation=str,
    count=int,
    of=int,
)

DRAWS_DIFFER = Kind(
    "random-draws-differ",
    "The ranks draw different random numbers at {line}.",
    because="{operation} gave different results in {count} of {of} draws; --random-streams equal asks for the same.",
    look="the seed before {line}: it must be the same on all ranks, and so must all draws since",
    line=str,
    operation=str,
    count=int,
    of=int,
)

# ------------------------------------------------------------------------------------------------ metrics, checkpoints

METRIC_WITHOUT_COUNTS = Kind(
    "metric-averaged-without-counts",
    "The reduction at {line} averages ranks with different numbers of samples: {counts}.",
    look="{line}: reduce the sum and the count, then divide",
    line=str,
    counts=tuple[int, ...],
)
METRIC_OF_ONE_RANK = Kind(
    "metric-of-one-rank",
    "Each rank evaluates a shard, and the results are not combined.",
    because="No collective follows the passes over the loader made at {line}.",
    look="a reduction of the metric's sum and count over the ranks",
    line=str,
)
CHECKPOINT_BY_SEVERAL = Kind(
    "checkpoint-written-by-several-ranks",
    "{ranks:Rank # writes|Ranks # write} the same file {file}.",
    look="{line}: save on rank 0 only, then a barrier",
    certainty="certain",
    ranks=tuple[int, ...],
    file=str,
    line=str,
)
CHECKPOINT_PREFIX = Kind(
    "checkpoint-has-wrapper-prefix",
    "The checkpoint's names begin with `module.`, the wrapper's prefix.",
    because="They do not fit the model without a wrapper; with strict=False nothing is loaded at all.",
    look="{line}: save model.module.state_dict()",
    certainty="certain",
    line=str,
)
STATE_RESTORED_ON_ONE_RANK = Kind(
    "state-restored-on-one-rank",
    "{ranks:Only rank # restores|Only ranks # restore} the checkpoint, at {line}.",
    look="{line}: every rank must load",
    certainty="certain",
    ranks=tuple[int, ...],
    line=str,
)
STATE_NOT_RESTORED = Kind(
    "state-not-restored",
    "The resumed run differs from the uninterrupted one: {what}.",
    look="the contents of the checkpoint (optimizer, schedule and random generators too), the values that are loaded, and "
    "settings that depend on the shorter run's arguments",
    what=str,
)
