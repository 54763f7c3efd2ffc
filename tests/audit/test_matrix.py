"""Each broken script is caught with the manifest's cause first; each right or repaired script has no finding.

pytest runs a few scripts, for different laws. DDPCHECK_EVERY_FAULT=1 runs all of them, as does `tox -e faults`:

    DDPCHECK_EVERY_FAULT=1 pytest tests/audit/test_matrix.py
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

pytest.importorskip("torch")

from audits import FORK_SERVERS  # the marker above must come first
from chosen_faults import EVERY
from matrix import MANIFEST, SCRIPTS, Entry, audited, entries, markdown, verdict

from ddpcheck.launchers.mpi import find_mpi

BY_DEFAULT = frozenset(
    {
        "broken/loss_mean_over_own_tokens.py",
        "broken/clip_before_reduction.py",
        "broken/no_sampler.py",
        "broken/set_epoch_forgotten.py",
        "broken/last_window_divided_by_full_count.py",
        "broken/same_dropout_on_all_ranks.py",
        "broken/unfrozen_after_wrapping.py",
        "broken/metric_averaged_without_counts.py",
        "broken/schedule_made_for_one_process.py",
        "broken/class_weights_of_own_part.py",
        "broken/metric_reduced_to_rank_0.py",
        "broken/loss_weights_outside_wrapper.py",
        "broken/eval_mode_left_on_rank_0.py",
        "broken/targets_by_place_in_shard.py",
        "right/token_weighted_lm.py",
        "right/accumulation_no_sync.py",
        "right/get_batch.py",
        "right/amp_batch_norm.py",
        "right/amp_sync_batch_norm.py",
        "broken/mpi_tail_not_reduced.py",
        "broken/mpi_summed_under_adam.py",
        "right/mpi_accumulate.py",
    }
)
CHOSEN = [entry for entry in entries() if os.environ.get(EVERY) or entry.name in BY_DEFAULT]


def test_the_manifest_has_every_script_and_fitting_repairs() -> None:
    every = entries()
    listed = {entry.file for entry in every}
    assert listed == {str(file.relative_to(SCRIPTS)) for file in SCRIPTS.glob("*/*.py")}, MANIFEST
    assert listed >= BY_DEFAULT
    for entry in every:
        compile(entry.text(), entry.name, "exec")
        assert entry.causes or entry.repaired or entry.data["about"]


@pytest.mark.parametrize("entry", CHOSEN, ids=[entry.name.replace(" ", "-") for entry in CHOSEN])
def test_script(entry: Entry, tmp_path: Path) -> None:
    missing = [package for package in entry.packages if importlib.util.find_spec(package) is None]
    if missing:
        pytest.skip(f"the script imports {', '.join(missing)}, which is not installed")
    if "mpi4py" in entry.packages and find_mpi() is None:
        pytest.skip("the script needs mpiexec, and there is none")
    result = audited(entry, tmp_path, FORK_SERVERS)
    if entry.causes:
        assert (*result.causes, "none")[0] in entry.causes, result.page
    else:
        result.holds()
        against = next(each for each in result.verdicts if each.check == "gradients_equal_those_of_one_process")
        assert (against.status == "skipped") == entry.data.get("not_compared", False), against.reason


def row(script: str, wanted: str, *causes: str, laws: int = 1) -> dict[str, object]:
    return {
        "script": script, "wanted": [wanted] if wanted else [], "causes": list(causes), "laws": ["law"] * laws, "why": "",
        "against_one_process": "passed", "steps": 6, "seconds": 2.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (row("a", "x", "x", "y"), "caught"),
        (row("a", "x", "y", "x"), "wrong cause"),
        (row("a", "x", laws=0), "missed"),
        (row("a", "", laws=0), "right"),
        (row("a", "", "y"), "false alarm"),
        ({**row("a", "", laws=0), "steps": 0}, "no steps"),
    ],
)
def test_verdicts(seen: dict[str, object], word: str) -> None:
    assert verdict(seen) == word


def test_the_last_line_of_a_script_counts() -> None:
    rows = [row("a", "x", laws=0), row("a", "x", "x"), row("b", "", laws=0), row("gone", "x", "x")]
    page = markdown(rows, {"b": "", "a": "owner/project#1"})
    assert "Broken: 1. Caught: 1. Wrong cause: 0. Missed: 0." in page
    assert "| a | caught | x |  | 2.5 | owner/project#1 |" in page
    assert "gone" not in page
