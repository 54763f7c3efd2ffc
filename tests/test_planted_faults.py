"""Which faults are planted together."""

from __future__ import annotations

from planted.faults_together import alone, fit_together


def test_faults_are_not_planted_together_if_one_leaves_out_the_calls_of_another() -> None:
    known = {fault.name: fault for fault in alone().values()}
    reduces, in_buckets = known["tensor-names-differ"], known["none-grads-skipped-in-flatten"]
    clips, around = known["clipped-tensor-by-tensor"], known["unused-grad-zero-not-none"]
    assert not fit_together([reduces, in_buckets])
    assert fit_together([reduces, clips])
    assert fit_together([in_buckets, clips])
    assert fit_together([in_buckets, around])
