"""Tables of hypotheses about aggregated metrics and about scores."""

from __future__ import annotations

from ..metrics import counts, means, names, nonfinite
from ..scores import formulas, padding, perturbations, ranks, rows, special_scores, terms

OF_A_MISSING_MEAN = (
    counts.count_wraps,
    means.metric_missing,
)
"""Of a metric that a rank does not get."""

OF_A_MEAN = (
    counts.count_wraps,
    means.of_earlier_calls,
    means.nan_of_ranks_without_samples,
    counts.counts_averaged_as_integers,
    means.zero_ignored,
    counts.count_overflows,
    means.not_weighted,
    means.ranks_without_samples_counted,
    means.divided_by_count_of_earlier_call,
    means.mean_truncated,
    counts.divided_by_other_count,
    counts.half_precision_overflows,
    means.equal_ranks_count_once,
    means.rank_missing,
    means.negative_mean_cut,
    means.single_samples_left_out,
    means.mean_rounded,
    means.by_size,
)
"""Of a wrong mean of metrics."""

OF_OTHER_NAMES = (
    names.metrics_by_position,
    names.earlier_names_returned,
    names.names_rewritten,
    names.name_prefix_cut,
    names.names_of_earlier_call,
    names.names_in_other_order,
    names.names_missing,
    names.named_metric_not_aggregated,
    names.rule_by_name,
    names.capped_by_name,
    names.names_cut_short,
    names.names_confused,
)
"""Of named metrics, before those about a mean."""

OF_MIXED_UP_NAMES = (
    names.equal_metrics_reduced_together,
    names.metrics_mixed_up,
)
"""Of named metrics, after those about a mean."""

OF_LOST_NONFINITE = (
    nonfinite.opposite_infinities,
    nonfinite.nonfinite_left_out,
)
"""Of a number in place of the mean of values that are not all finite."""

OF_METRICS_BESIDE_NAN = (
    nonfinite.nan_spreads,
    nonfinite.rank_left_out_for_nan,
    nonfinite.multiplied_beside_nan,
    nonfinite.mixed_up_beside_nan,
)
"""Of a metric beside another one that is NaN on one rank."""

OF_A_SCORE = (
    terms.of_a_narrow_count,
    ranks.of_earlier,
    rows.of_repetition,
    rows.of_labels,
    ranks.of_ranks,
    formulas.of_formula,
    terms.of_terms,
    ranks.of_some_ranks,
    rows.of_some_samples,
    rows.of_offsets,
    padding.of_zeros,
    perturbations.of_mixed,
)
"""Of a wrong score, each with the scores that it gives."""

OF_A_SPECIAL_SCORE = {
    "large values": special_scores.of_large_values,
    "NaN": special_scores.of_nan,
    "a number for NaN": special_scores.of_number_for_nan,
    "another number": special_scores.of_other_number,
}
"""Of a score by its size alone; the first and the last where no other hypothesis fits."""
