"""Gradients are not those of one process."""

from ..cause import Kind

PARAMETER_NOT_SYNCHRONISED = Kind(
    "parameter-not-synchronised",
    "The gradient of {parameter} is not synchronised.",
    because="{how}",
    look="where the ranks' gradients are combined before {line}",
    parameter=str,
    how=str,
    line=str,
)
WRAPPER_WAITS = Kind(
    "wrapper-waits-for-parameter",
    "The wrapper waits for a gradient of {parameter}, and step {step} computes none: other gradients are not reduced.",
    because="{how}",
    look="what freezes it, which belongs before the wrapper is made; or find_unused_parameters, if some steps do not use it",
    parameter=str,
    step=int,
    how=str,
)
GRADIENT_CHANGED_APART = Kind(
    "gradient-changed-after-reduction",
    "Each rank changes the gradient of {parameter} in its own way, after it was synchronised.",
    because="After the backward at {backward} it is equal on all ranks, and at the step it is not.",
    look="what changes gradients before {line}, such as noise: every rank must draw the same",
    certainty="certain",
    parameter=str,
    backward=str,
    line=str,
)
GRADIENT_CHANGED_BEFORE = Kind(
    "gradient-changed-before-reduction",
    "A hook at {line} changes each rank's own gradients, before they are averaged over ranks.",
    because="It multiplies them by {factors}, rank by rank, and one process's by other factors.",
    look="{line}: change gradients between backward() and step() instead, as clip_grad_value_ does",
    factors=str,
    line=str,
)
TERM_DIVIDED_BY_OWN_SAMPLES = Kind(
    "term-divided-by-own-samples",
    "A term of the loss is divided by the number of one rank's samples, {count}, at {line}.",
    because="The term does not depend on samples. One process has {size}, so the term counts {ranks} times as much as there.",
    look="{line}: divide by the samples of all ranks",
    line=str,
    count=int,
    size=int,
    ranks=int,
)
BATCH_CHOSEN_BY_ONE_RANK = Kind(
    "batch-skipped-by-one-rank",
    "One rank decides at {line} whether all ranks train on a batch, by what it computes from its own samples.",
    because="In step {step} one process, which has the samples of all ranks, reads other batches.",
    look="{line}: reduce over ranks what the decision depends on, such as the loss, before it is made",
    step=int,
    line=str,
)
PARAMETERS_OF_ONE_RANK = Kind(
    "parameters-of-one-rank",
    "After each step all ranks take one rank's parameters, at {line}.",
    because="Each rank steps with its own gradients, and those of the other ranks are lost.",
    look="{line}: average gradients over ranks before the step instead",
    line=str,
)
PARAMETERS_AVERAGED = Kind(
    "parameters-averaged-after-step",
    "Each rank steps with its own gradients, and parameters are averaged after, at {line}.",
    because="This is not the step of the mean gradient: {optimizer} or clipping is not linear in the gradient.",
    look="{line}: average gradients over ranks before the step instead",
    optimizer=str,
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
PARAMETER_OUTSIDE = Kind(
    "parameter-outside-wrapper",
    "{parameter} is in the optimizer made at {line}, and in no DDP wrapper.",
    because="Other parameters of the optimizer are in one, so each rank trains this one alone.",
    look="where {parameter} is made: a part of the wrapped model, or a module with a wrapper of its own",
    certainty="certain",
    parameter=str,
    line=str,
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
    because="What it adds to the gradients stays on its rank.",
    look="the condition for no_sync before {line}",
    certainty="certain",
    line=str,
)
SYNCHRONISED_TOO_LATE = Kind(
    "synchronised-too-late",
    "The last forward before a step is not to synchronise; only its backward is.",
    because="DDP decides in the forward at {forward}: a flag that is set after it counts for the next backward, not at {line}.",
    look="where require_backward_grad_sync is set: before {forward}",
    certainty="certain",
    forward=str,
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
SPARSE_WITHOUT_INDICES = Kind(
    "sparse-gradient-without-indices",
    "The sparse gradient of {parameter} differs between ranks after it is reduced at {line}.",
    because="Its values belong to the rows that its indices name, and these differ between ranks.",
    look="{line}: gather indices and values of all ranks, or make the gradient dense before it is reduced",
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
GRADIENTS_MULTIPLIED_AFTERWARDS = Kind(
    "gradients-multiplied-after-averaging",
    "Gradients are multiplied by {factor:.6g}, the world size, after the wrapper has averaged them.",
    because="DistributedDataParallel divides by the world size, but every gradient is the sum over the ranks at the step.",
    look="what changes gradients between the backward at {backward} and the step at {line}",
    factor=float,
    backward=str,
    line=str,
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
GRADIENTS_DIVIDED_TWICE = Kind(
    "gradients-divided-twice",
    "Gradients are divided by the world size twice, so that each is 1/{ranks} of that of one process.",
    because="The sum over ranks has the weight 1/{ranks} squared. A wrapper averages by itself, as ReduceOp.AVG does.",
    look="what divides gradients between {line} and the step",
    ranks=int,
    line=str,
)
REDUCED_WITHOUT_GRADIENT = Kind(
    "reduced-without-gradient",
    "all_reduce at {line} adds up values of the loss and drops their gradient.",
    because="The loss is that of one process, but every gradient is 1/{ranks} of one process's.",
    look="torch.distributed.nn.functional.all_reduce, whose backward reduces the gradient too",
    ranks=int,
    line=str,
)
LOSS_FACTOR_IGNORED = Kind(
    "loss-factor-ignored",
    "The loss is multiplied by {factor:.6g}, but its gradient is not.",
    because="The backward of {operation} does not use the gradient that it gets.",
    look="the backward of {operation}: multiply its results by grad_output",
    factor=float,
    operation=str,
)
GRADIENT_SMALLER_THAN_LOSS = Kind(
    "gradient-smaller-than-loss",
    "Every gradient is 1/{ranks} of one process's, although the loss is the same.",
    because="A loss that is a sum over samples would be smaller, too.",
    look="the loss before {line}: values of other ranks without their gradient, or a backward of the script's own",
    ranks=int,
    line=str,
)
LOSS_AVERAGED_TWICE = Kind(
    "loss-averaged-before-backward",
    "The loss is averaged over ranks at {line}, and its gradients are averaged as well.",
    because="all_reduce passes no gradient on, so each rank's gradient is 1/{ranks} of that of its own loss.",
    look="{line}: reduce a copy for the log, and call backward on the rank's own loss",
    ranks=int,
    line=str,
)
LOSS_DIVIDED_TWICE = Kind(
    "loss-divided-twice",
    "Gradients are 1/{ranks} of those of one process: divided by the ranks' total, and averaged.",
    because="The sum of the ranks' gradients is that of one process; their mean is {ranks} times too small.",
    look="the loss before {line}: multiply it by the world size, or sum gradients instead of averaging them",
    ranks=int,
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
LOSS_DIVIDED_BY_OWN_NUMBER = Kind(
    "loss-divided-by-own-number",
    "The loss is divided by another number on each rank: {own}.",
    because="One process divides it by {whole:.4g}, which is no sum over the ranks: a running mean of the loss, for example.",
    look="{line}: reduce the number over ranks before its use",
    own=str,
    whole=float,
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
    "Samples of a batch are compared or combined in {line}; a rank has only its own.",
    because="The whole batch's gradient is no combination of the ranks' gradients.",
    look="{line}: gather what it compares from all ranks, or reduce what it combines, such as a mean or class weights, before "
    "it is used",
    line=str,
)
LOSS_DECIDED_PER_RANK = Kind(
    "loss-decided-per-rank",
    "{ranks:Rank # computes|Ranks # compute} the loss of step {step} by {line}; the other ranks do not.",
    because="Each rank decides by a value of its own, such as its own loss.",
    look="{condition}: let all ranks decide by one value: reduce it over the ranks first",
    ranks=tuple[int, ...],
    step=int,
    line=str,
    condition=str,
)
STATISTIC_OF_PARTS = Kind(
    "statistic-not-of-whole-batch",
    "The statistic that all_reduce combines at {line} is not that of the whole batch.",
    because="Its result is neither that of one process, nor {ranks} times it. A mean of variances over ranks, or of ratios, is "
    "not the variance or the ratio over all samples.",
    look="{line}: reduce sums of values, sums of squares, and counts; compute the statistic from them",
    ranks=int,
    line=str,
)
VALUE_DIFFERS = Kind(
    "value-differs-between-ranks",
    "The value that {line} uses in each step differs between ranks.",
    because="It is no parameter and no part of a batch; each rank computed it, as with class weights of its own data.",
    look="where the value is computed: reduce over ranks what it is computed from",
    line=str,
)
CARRIED_VALUE_DIFFERS = Kind(
    "carried-value-of-each-rank",
    "The value that {line} uses is carried from step to step, and differs between ranks.",
    because="Each rank updates it from its own samples, as a running mean, a centre or a weight; one process uses all samples.",
    look="where the value is updated: reduce over ranks what it is updated from",
    line=str,
)
TERM_NORMALISED = Kind(
    "loss-term-normalised-per-rank",
    "A term of the loss is divided or multiplied by each rank's own number at {line}: {own}.",
    because="One process uses {whole}, for the samples of all ranks.",
    look="{line}: reduce the number over ranks before its use",
    line=str,
    own=str,
    whole=str,
)
TERM_SCALED = Kind(
    "loss-term-scaled",
    "A term of the loss is divided or multiplied by {own} at {line}, and by {whole} in one process.",
    look="{line}: the number depends on the world size, and other terms of the loss do not",
    line=str,
    own=str,
    whole=str,
)
TERM_DIVIDED_TWICE = Kind(
    "loss-term-divided-twice",
    "A term of the loss at {line} is divided by what all ranks have, and averaged over ranks as well.",
    because="The ranks' values add up to that of one process, so that their mean counts 1/{ranks}. Other terms are means.",
    look="{line}: multiply the term by the world size",
    line=str,
    ranks=int,
)
NUMBER_DIFFERS = Kind(
    "number-of-each-rank",
    "The loss uses a number at {line} that differs between ranks: {own}; one process uses {whole}.",
    because="Each rank computes it from its own samples, or chooses it by its rank; torch may compute with it before its use.",
    look="where the number comes from: choose it alike on all ranks, or reduce over them what it is computed from",
    line=str,
    own=str,
    whole=str,
)
TARGETS_SHIFTED_BY_OTHER_ROWS = Kind(
    "targets-shifted-by-other-rows",
    "The targets of gathered features are shifted by {shift} for each rank, but each rank gives {own} features.",
    because="The features that a row should match are then those of another rank.",
    look="{line}: add the rank times {own} to the targets",
    certainty="certain",
    shift=int,
    own=int,
    line=str,
)
TARGETS_NOT_SHIFTED = Kind(
    "targets-not-shifted-by-rank",
    "The targets of gathered features begin with 0 on every rank.",
    because="A loss compares a rank's {rows} rows with {columns} gathered columns, and only rank 0's own columns begin with 0.",
    look="{line}: add rank * {rows} to the targets",
    certainty="certain",
    rows=int,
    columns=int,
    line=str,
)
OWN_FEATURES_MISPLACED = Kind(
    "own-features-misplaced",
    "Rank {rank} puts its own features in place {place} of the gathered ones.",
    because="all_gather puts them in place {rank}: there they are twice now, and those of rank {place} are missing.",
    look="{line}, and the line before that replaces one of the gathered tensors: its index must be the rank",
    certainty="certain",
    rank=int,
    place=int,
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
RANKS_WEIGHTED = Kind(
    "ranks-weighted-wrongly",
    "The reduction weighs the ranks' gradients by {got}, and one process by {wanted}.",
    look="{line}: an all-reduce gives every rank the same weight; a broadcast takes one rank's gradients alone",
    got=str,
    wanted=str,
    line=str,
)
MICRO_BATCHES_WEIGHTED = Kind(
    "micro-batches-weighted-apart",
    "The micro-batches of a window have different weights in the reduced gradient: {weights} times the mean over ranks.",
    because="A sum over ranks after each backward multiplies the earlier micro-batches, too.",
    look="{line}: reduce once, after the last backward of the window",
    weights=str,
    line=str,
)
REDUCTION_IS_NO_COMBINATION = Kind(
    "reduction-is-no-combination",
    "The reduced gradient of {parameter} is no combination of the ranks' gradients.",
    look="compression, noise or another change between {line} and the step, such as each rank's own clipping of its part",
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
GRADIENTS_LOST = Kind(
    "gradients-lost-before-step",
    "Backward passes compute gradients, and the optimizer has none when it steps.",
    because="{how}",
    look="the lines between {backward} and {line}: what turns off the reduction for the last backward, as "
    "set_requires_gradient_sync(False) does until it is called with True, or what clears gradients, as zero_grad does",
    certainty="certain",
    how=str,
    backward=str,
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
OWN_VALUES_OVERWRITTEN = Kind(
    "own-values-overwritten",
    "The broadcast at {line} replaces what each rank computed from its own samples by rank {root}'s values.",
    because="Before it, the values differ between ranks in step {step}. One process keeps those of all samples.",
    look="{line}: the values of a rank's own samples, such as a hidden state, belong to that rank alone",
    root=int,
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
PARTS_SCALED_APART = Kind(
    "parts-scaled-apart",
    "Each rank multiplies its part of the gradients by a factor of its own: {factors}.",
    because="The gradients are split over the ranks. Clipping by the norm of a rank's own part does that.",
    look="the lines between backward and {line}: reduce the sum of squares over ranks, or call clip_grad_norm_",
    factors=str,
    line=str,
)
CLIP_BY_OWN_PART = Kind(
    "clip-by-own-part",
    "Each rank clips by the norm of its own part of the gradients.",
    because="The gradients are split over the ranks, and the norms differ: {norms} in one step.",
    look="{line}: clip by the method of the sharded model, such as FullyShardedDataParallel.clip_grad_norm_, or by a norm "
    "whose square is summed over the ranks",
    certainty="certain",
    norms=str,
    line=str,
)
