"""The ranks' models, buffers or optimizers differ."""

from ..cause import Kind

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
OPTIMIZER_STATE_LOADED_ON_ONE_RANK = Kind(
    "optimizer-state-loaded-on-one-rank",
    "{ranks:Only rank # loads|Only ranks # load} the optimizer's state, at {line}.",
    because="{how} A wrapper sends parameters to the other ranks, and no states of optimizers.",
    look="{line}: load on every rank, or send the state to the other ranks before the next step",
    certainty="certain",
    ranks=tuple[int, ...],
    line=str,
    how=str,
)
OPTIMIZER_STATES_DIFFER = Kind(
    "optimizer-states-differ",
    "The ranks' optimizers begin step {step} with different states, first of {parameter}.",
    because="The same gradients then give different updates.",
    look="where the optimizer's state is loaded or written before step {step}: it must be the same on every rank",
    parameter=str,
    step=int,
)
PARAMETER_NOT_SENT = Kind(
    "parameter-not-sent-by-its-owner",
    "Rank {rank} alone steps {parameter}, and the other ranks do not get the result.",
    because="The ranks' optimizers hold different parameters, and this one differs from step {step} on.",
    look="the loop that sends parameters after a step: it must reach all of them",
    rank=int,
    parameter=str,
    step=int,
)
PARAMETERS_CHANGED_APART = Kind(
    "parameters-changed-apart",
    "{ranks:Rank # changes|Ranks # change} {parameter} outside the optimizer, so that it differs between ranks.",
    because="After the step at {line} it is equal on all ranks, and before the next forward it is not.",
    look="the lines after {line} that write to parameters, such as a clamp or a normalisation: every rank must do the same",
    certainty="certain",
    ranks=tuple[int, ...],
    parameter=str,
    line=str,
)
SWAPPED_WEIGHTS_DIFFER = Kind(
    "swapped-in-weights-differ",
    "Weights that are put into the model after step {step} differ between ranks, first {parameter}.",
    because="The weights that come back afterwards are equal, so training goes on: an evaluation on each rank has other weights.",
    look="where these weights are made and updated, such as a moving average: from equal parameters, after the wrapper has sent "
    "rank 0's",
    certainty="certain",
    step=int,
    parameter=str,
)
MODES_DIFFER = Kind(
    "training-modes-differ",
    "{ranks:Rank # trains|Ranks # train} with {module} in eval() from step {step} on, and other ranks do not.",
    because="Dropout and batch norm do something else in eval(), so the ranks train different functions.",
    look="where eval() is called on some ranks, as for an evaluation on rank 0: call train() on them before {line}",
    certainty="certain",
    ranks=tuple[int, ...],
    module=str,
    step=int,
    line=str,
)
REPLICAS_DRIFT = Kind(
    "replicas-drift",
    "The ranks' parameters differ from step {step} on, first {parameter}.",
    look="what follows the step: random numbers, buffers or writes that differ by rank",
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
    "All ranks use {module}, but its parameters differ.",
    because="The parameters are in no optimizer. One rank alone updates them, as with a moving average.",
    look="where {parameter} is updated; each rank must do so",
    module=str,
    parameter=str,
)
MODEL_UPDATED_ON_SOME_RANKS = Kind(
    "model-updated-on-some-ranks",
    "{ranks:Only rank # updates|Only ranks # update} {module}, at {line}, though all ranks use it.",
    because="Its parameters are in no optimizer and differ between ranks, first {parameter}.",
    look="{condition}: every rank must make this update",
    certainty="certain",
    ranks=tuple[int, ...],
    module=str,
    parameter=str,
    line=str,
    condition=str,
)
SAVED_MODEL_NOT_UPDATED = Kind(
    "saved-model-not-updated",
    "Rank 0 does not update {module}; {ranks:only rank # does|only ranks # do}, at {line}.",
    because="It is in no optimizer and no forward pass uses it. If rank 0 saves it, the file has its first values.",
    look="{condition}: rank 0, or every rank, must make this update",
    ranks=tuple[int, ...],
    module=str,
    parameter=str,
    line=str,
    condition=str,
)
STATISTICS_OF_OWN_SHARD = Kind(
    "statistics-of-own-shard",
    "Each rank evaluates {module} with batch norm statistics of its own shard, first {buffer}.",
    because="They are estimated anew before the evaluation at {line}, from the rank's own samples, as update_bn does.",
    look="where they are estimated: reduce them over ranks, or let every rank read all samples",
    certainty="certain",
    module=str,
    buffer=str,
    line=str,
)
MODELS_START_DIFFERENT = Kind(
    "untrained-parameters-start-different",
    "The ranks start with different parameters of {module} that no optimizer trains, first {parameter}.",
    because="{how}",
    look="the seed before {module} is made, or a broadcast of all its parameters from rank 0, before any copy of it is made",
    module=str,
    parameter=str,
    how=str,
)
OPTIMIZER_HOLDS_REPLACED = Kind(
    "optimizer-holds-replaced-parameters",
    "The optimizer does not hold {parameter}, which is trained.",
    because="It holds {count:# parameter that is|# parameters that are} not in the model.",
    look="the order: change the model first, then make the optimizer",
    certainty="certain",
    parameter=str,
    count=int,
)
