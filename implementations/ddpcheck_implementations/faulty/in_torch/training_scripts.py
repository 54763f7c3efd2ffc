"""Mistakes of torch's users beside the reduction: copies, modes, unfrozen layers, optimizers; and hooks with thresholds."""

from __future__ import annotations

from ddpcheck.contract.names import MODEL_FEATURES

from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.modules import hook, optimizer, wrapped_by
from ..replicas.freezing import UNFROZEN
from .wrappers import EXACT

LEAVES = "check_training_leaves_process_state_unchanged"
REAL = "check_gradients_equal_the_large_batch_within_rounding"


# fmt: off
table(
    globals(),
    Fault("torch-unfreezing", where=always, effect=wrapped_by("torch_wrappers:SkipsNone"),
          unfreezing=True),
    Fault("hooked-at-the-start", where=always, effect=wrapped_by("torch_wrappers:HookedAtTheStart"),
          caught_by=UNFROZEN, cause="not-reduced", seen_in=("Lightning-AI/pytorch-lightning#20340",), unfreezing=True),
    Fault("trains-a-copy", where=always, effect=wrapped_by("torch_wrappers:TrainsACopy"),
          caught_by=EXACT, cause="no-gradients-anywhere"),
    Fault("eval-stays-on-the-wrapper", where=always, effect=wrapped_by("torch_wrappers:EvalStays"),
          caught_by="check_predict_uses_the_running_statistics", cause="evaluation-moves-statistics"),
    Fault("eval-switches-reduction-off", where=always, effect=wrapped_by("torch_wrappers:EvalSwitchesOff"),
          caught_by="check_predict_does_not_change_training", cause="not-reduced"),
    Fault("used-is-what-is-not-zero", where=always, effect=wrapped_by("torch_wrappers:UsedByValue"),
          caught_by="check_unused_parameters_on_some_ranks_count_as_zero", cause="use-told-by-value",
          unused_parameters="synchronised"),
    Fault("clips-unasked", where=always, effect=wrapped_by("torch_wrappers:ClipsUnasked"),
          caught_by=REAL, cause="wrong-factor"),
    Fault("comm-hook-clamps", where=always, effect=hook("torch_wrappers:clamped"),
          caught_by=EXACT, cause="parts-clamped"),
    Fault("comm-hook-drops-small-ranks", where=always, effect=hook("torch_wrappers:small_ones_dropped"),
          caught_by=REAL, cause="one-ranks-part-only"),
    Fault("zero-grad-of-its-own-shard", where=always, effect=optimizer("torch_wrappers:ZeroesItsShard"),
          caught_by=EXACT, cause="some-ranks-not-reset", optimizers=frozenset({"sgd"})),
    Fault("nan-seen-by-its-owner", where=always, effect=optimizer("torch_wrappers:SkipsItsShard"),
          caught_by="check_nonfinite_step_is_skipped_on_all_ranks", cause="nonfinite-decided-in-parts",
          optimizers=frozenset({"sgd"}), skips_nonfinite=True),
    Fault("keeps-outputs", where=always, effect=wrapped_by("torch_wrappers:KeepsOutputs"),
          caught_by=LEAVES, cause="memory-grows"),
    Fault("hooks-in-each-forward", where=always, effect=wrapped_by("torch_wrappers:HooksEachForward"),
          caught_by=LEAVES, cause="memory-grows"),
    Fault("seeds-in-each-forward", where=always, effect=wrapped_by("torch_wrappers:SeedsEachForward"),
          caught_by=LEAVES, cause="process-generator-changed"),
    Fault("sets-the-default-dtype", where=always, effect=wrapped_by("torch_wrappers:SetsDefaultDtype"),
          caught_by=LEAVES, cause="process-setting-changed"),
    Fault("gradient-in-memory-order", where=always, effect=wrapped_by("torch_wrappers:InMemoryOrder"),
          caught_by="check_column_major_parameters_train_like_row_major", cause="strides-mixed",
          seen_in=("pytorch/pytorch#47163",), model_features=MODEL_FEATURES | {"strided"}),
)
# fmt: on
