"""The laws of a run, the most fundamental first: a broken law often breaks the laws after it."""

from __future__ import annotations

from . import (
    accumulation,
    batch_means,
    constant_gradients,
    data,
    divided_terms,
    gradients,
    modes,
    randomness,
    replicas,
    results,
    resuming,
    sample_parts,
    samples,
    schedules,
    shards,
    steps,
    world,
)
from .law import Law, LawVerdict, Status

__all__ = ["LAWS", "Law", "LawVerdict", "Status"]

LAWS: tuple[Law, ...] = (
    Law("ranks_form_one_world", "world", "The processes form one world.", world.ranks_form_one_world),
    Law("ranks_get_as_many_batches", "data", "All ranks get as many batches.", data.ranks_get_as_many_batches),
    Law("ranks_stop_together", "world", "All ranks stop training together.", world.ranks_stop_together),
    Law(
        "ranks_call_the_same_collectives",
        "world",
        "All ranks make the same collective calls.",
        world.ranks_call_the_same_collectives,
    ),
    Law(
        "optimizers_hold_what_is_trained",
        "replicas",
        "The optimizers hold the parameters that are trained.",
        replicas.optimizers_hold_what_is_trained,
    ),
    Law(
        "gradients_depend_on_the_data",
        "gradients",
        "Gradients are finite and depend on the data.",
        gradients.gradients_depend_on_the_data,
        follows=("optimizers_hold_what_is_trained",),
    ),
    Law(
        "units_are_not_copies",
        "gradients",
        "Units of a layer are not copies of one another.",
        constant_gradients.units_are_not_copies,
        of_one_process=True,
    ),
    Law(
        "ranks_read_different_shards", "data", "Each rank reads a shard of its own.", shards.ranks_read_different_shards
    ),
    Law("every_sample_is_used", "data", "Each sample is used.", data.every_sample_is_used),
    Law(
        "epochs_have_orders_of_their_own",
        "data",
        "Each epoch has an order of its own.",
        data.epochs_have_orders_of_their_own,
    ),
    Law(
        "samples_are_the_same_on_all_ranks",
        "data",
        "A sample is the same on all ranks.",
        samples.samples_are_the_same_on_all_ranks,
    ),
    Law(
        "samples_have_their_own_parts",
        "data",
        "A sample's parts belong together.",
        sample_parts.samples_have_their_own_parts,
    ),
    Law(
        "ranks_start_from_the_same_parameters",
        "replicas",
        "All ranks start from the same parameters.",
        replicas.ranks_start_from_the_same_parameters,
    ),
    Law(
        "ranks_train_in_the_same_mode",
        "replicas",
        "All ranks train in the same mode.",
        modes.ranks_train_in_the_same_mode,
    ),
    Law("buffers_are_equal", "replicas", "Buffers that the forward pass uses are equal.", replicas.buffers_are_equal),
    Law(
        "hyperparameters_are_equal",
        "steps",
        "All ranks use the same hyperparameters.",
        steps.hyperparameters_are_equal,
    ),
    Law("ranks_skip_the_same_steps", "steps", "All ranks skip the same steps.", steps.ranks_skip_the_same_steps),
    Law(
        "schedules_fit_the_run",
        "steps",
        "Learning rates are scheduled for the steps of a rank.",
        schedules.schedules_fit_the_run,
    ),
    Law(
        "clipping_comes_last",
        "gradients",
        "Clipping follows the reduction, once a step.",
        gradients.clipping_comes_last,
    ),
    Law(
        "gradients_are_synchronised",
        "gradients",
        "The gradient of each trained parameter is synchronised.",
        gradients.gradients_are_synchronised,
    ),
    Law(
        "terms_are_divided_by_all_samples",
        "gradients",
        "A term without samples is divided by all samples.",
        divided_terms.terms_are_divided_by_all_samples,
    ),
    Law(
        "gradients_equal_those_of_one_process",
        "gradients",
        "Gradients are those of one process on the whole batch.",
        gradients.gradients_equal_those_of_one_process,
    ),
    Law(
        "gathered_features_keep_their_gradient",
        "gradients",
        "Gathered features keep their gradient.",
        gradients.gathered_features_keep_their_gradient,
    ),
    Law(
        "windows_divide_by_their_size",
        "accumulation",
        "Each of k accumulated micro-batches counts 1/k.",
        accumulation.windows_divide_by_their_size,
        of_one_process=True,
    ),
    Law(
        "windows_are_stepped",
        "accumulation",
        "No micro-batch is lost at the end of an epoch.",
        accumulation.windows_are_stepped,
        of_one_process=True,
    ),
    Law(
        "only_the_last_micro_batch_communicates",
        "accumulation",
        "Only the last micro-batch of a window communicates.",
        accumulation.only_the_last_micro_batch_communicates,
    ),
    Law(
        "random_streams_are_as_asked",
        "randomness",
        "The ranks' random draws are different, or equal, as asked.",
        randomness.random_streams_are_as_asked,
    ),
    Law(
        "replicas_stay_equal",
        "replicas",
        "Parameters stay equal in all bits.",
        replicas.replicas_stay_equal,
        follows=("hyperparameters_are_equal", "ranks_skip_the_same_steps", "gradients_are_synchronised"),
    ),
    Law(
        "batch_norm_is_converted",
        "replicas",
        "Batch norm sees the whole batch where that is meant.",
        replicas.batch_norm_is_converted,
    ),
    Law(
        "evaluated_models_are_equal",
        "results",
        "A model that no optimizer trains is equal on all ranks.",
        replicas.evaluated_models_are_equal,
    ),
    Law(
        "means_weigh_ranks_by_their_samples",
        "results",
        "A mean over ranks weighs each rank by its samples.",
        results.means_weigh_ranks_by_their_samples,
    ),
    Law(
        "means_weigh_batches_by_their_samples",
        "results",
        "A mean over batches weighs each batch by its samples.",
        batch_means.means_weigh_batches_by_their_samples,
    ),
    Law(
        "metrics_are_combined",
        "results",
        "A metric over shards is combined over the ranks.",
        results.metrics_are_combined,
    ),
    Law(
        "one_rank_writes_each_checkpoint",
        "results",
        "One rank writes each checkpoint.",
        results.one_rank_writes_each_checkpoint,
    ),
    Law(
        "checkpoints_fit_the_bare_model",
        "results",
        "A checkpoint fits the model without its wrapper.",
        results.checkpoints_fit_the_bare_model,
    ),
    Law(
        "resumed_runs_go_on",
        "results",
        "A resumed run goes on as the uninterrupted one does.",
        resuming.resumed_runs_go_on,
    ),
    Law("ranks_end_without_error", "world", "All ranks end without an error.", world.ranks_end_without_error),
)
