"""Mistakes of torch users outside the reduction: copies, modes, optimizers, and communication hooks with thresholds."""

from __future__ import annotations

from ddpcheck.contract.allowed_names import MODEL_FEATURES

from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.modules import hook, optimizer, wrapped_by
from .wrappers import EXACT

LEAVES = "check_training_leaves_process_state_unchanged"
REAL = "check_gradients_equal_the_large_batch_within_rounding"


# fmt: off
table(
    globals(),
    Fault("torch-unfreezing", "Correct: layers may be frozen and unfrozen during training.",
          where=always, effect=wrapped_by("training_scripts:SkipsNone"),
          unfreezing=True),
    Fault("trains-a-copy", "The wrapper trains a copy of the module, so the caller's module gets no gradients.",
          where=always, effect=wrapped_by("training_scripts:TrainsACopy"),
          caught_by=EXACT, cause="no-gradients-anywhere"),
    Fault("eval-stays-on-the-wrapper",
          "eval() changes the wrapper's mode but not the module's, so evaluation moves running statistics.",
          where=always, effect=wrapped_by("training_scripts:EvalStays"),
          caught_by="check_predict_uses_the_running_statistics", cause="evaluation-moves-statistics"),
    Fault("eval-switches-reduction-off", "eval() turns off gradient reduction, and train() does not turn it on again.",
          where=always, effect=wrapped_by("training_scripts:EvalSwitchesOff"),
          caught_by="check_predict_does_not_change_training", cause="not-reduced"),
    Fault("used-is-what-is-not-zero", "A parameter counts as used if its gradient is not all zeros.",
          where=always, effect=wrapped_by("training_scripts:UsedByValue"),
          caught_by="check_unused_parameters_on_some_ranks_count_as_zero", cause="use-told-by-value",
          unused_parameters="synchronised"),
    Fault("clips-unasked", "The wrapper clips gradients although no clipping was requested.",
          where=always, effect=wrapped_by("training_scripts:ClipsUnasked"),
          caught_by=REAL, cause="wrong-factor"),
    Fault("comm-hook-clamps", "The communication hook clamps gradients to [-100, 100] before it sends them.",
          where=always, effect=hook("training_scripts:clamped"),
          caught_by=EXACT, cause="parts-clamped"),
    Fault("comm-hook-drops-small-ranks",
          "In the communication hook, a rank whose gradient norm is far below the largest sends zeros.",
          where=always, effect=hook("training_scripts:small_ones_dropped"),
          caught_by=REAL, cause="one-ranks-part-only"),
    Fault("zero-grad-of-its-own-shard",
          "zero_grad() of a sharded optimizer clears only the gradients of the rank's own shard.",
          where=always, effect=optimizer("training_scripts:ZeroesItsShard"),
          caught_by=EXACT, cause="some-ranks-not-reset", optimizers=frozenset({"sgd"})),
    Fault("nan-seen-by-its-owner",
          "Each rank looks for NaN only in its own shard, so only the owner of a NaN skips the step.",
          where=always, effect=optimizer("training_scripts:SkipsItsShard"),
          caught_by="check_nonfinite_step_is_skipped_on_all_ranks", cause="nonfinite-decided-in-parts",
          optimizers=frozenset({"sgd"}), skips_nonfinite=True),
    Fault("keeps-outputs", "Each forward pass stores its outputs, and with them the whole graph, forever.",
          where=always, effect=wrapped_by("training_scripts:KeepsOutputs"),
          caught_by=LEAVES, cause="memory-grows"),
    Fault("hooks-in-each-forward", "Each forward pass registers hooks that are never removed.",
          where=always, effect=wrapped_by("training_scripts:HooksEachForward"),
          caught_by=LEAVES, cause="memory-grows"),
    Fault("seeds-in-each-forward", "Each forward pass seeds torch's random generator.",
          where=always, effect=wrapped_by("training_scripts:SeedsEachForward"),
          caught_by=LEAVES, cause="process-generator-changed"),
    Fault("sets-the-default-dtype", "A forward pass on float64 inputs changes torch's default dtype.",
          where=always, effect=wrapped_by("training_scripts:SetsDefaultDtype"),
          caught_by=LEAVES, cause="process-setting-changed"),
    Fault("gradient-in-memory-order", "A gradient is read in memory order and written back row by row.",
          where=always, effect=wrapped_by("training_scripts:InMemoryOrder"),
          caught_by="check_column_major_parameters_train_like_row_major", cause="strides-mixed",
          seen_in=("pytorch/pytorch#47163",), model_features=MODEL_FEATURES | {"strided"}),
)
# fmt: on
