"""Modules of adapters that do not end, that end the process, or that print much while they are imported."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from ddpcheck.cli import main
from ddpcheck.contract import TYPICAL, CallForm, Capabilities, CollectivePromises, ReplicaPromises, needs
from ddpcheck.running.adapter_lookup import UnusableAdapter, resolve

MINIMAL = f"{Path(__file__).parent / 'minimal_adapter.py'}:adapter"


def told(tmp_path: Path, text: str, seconds: float = 60.0) -> str:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(UnusableAdapter) as caught:
        resolve(f"{file}:adapter", seconds)
    return str(caught.value)


@pytest.mark.parametrize(
    "loop", ["while True: pass", "while True:\n    try:\n        x = 1\n    except Exception:\n        pass"]
)
def test_an_import_that_does_not_end_is_ended_with_its_line(tmp_path: Path, loop: str) -> None:
    before = signal.getsignal(signal.SIGALRM)
    text = told(tmp_path, f"x = 0\n{loop}\n", 0.2)
    assert "was ended: it did not end within 0.2 s, and stood at" in text
    assert "mine.py, line " in text
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_an_import_that_ends_the_process_does_not(tmp_path: Path) -> None:
    text = told(tmp_path, "import os\nos._exit(3)\n")
    assert "it called os._exit(3) in" in text
    assert "mine.py, line 2" in text
    assert "SystemExit: 4" in told(tmp_path, "import sys\nsys.exit(4)\n")


def test_what_an_import_prints_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = told(tmp_path, "print('a' * 600_000)\nraise ValueError('b' * 600_000)\n")
    shown = capsys.readouterr().out
    assert len(shown) < 3000
    assert "598001 more characters that" in shown
    assert len(text) < 3000


def test_an_adapter_that_cannot_be_imported_does_not_end_the_run(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise ValueError('no cable')\n")
    options = ["-w", "1", "-c", "check_all_reduce_sums_exactly", "--profile", "quick", "--failures", str(tmp_path)]
    result = CliRunner().invoke(main, ["check", f"{broken}:adapter", MINIMAL, *options])
    assert result.exit_code == 2
    assert "2 passed" in result.output
    assert "Error: not checked: importing" in result.output
    assert "no cable" in result.output


def test_a_misspelt_promise_names_the_right_one() -> None:
    with pytest.raises(
        TypeError,
        match=r"ReplicaPromises has no promise 'no_snc'; did you mean 'no_sync' of ReplicaPromises\.replica_methods\?",
    ):
        ReplicaPromises(no_snc=True)  # type: ignore[call-arg]  # on purpose
    with pytest.raises(TypeError, match="Capabilities has no promise 'clipping'; it is a promise of ReplicaPromises"):
        Capabilities(clipping=True)  # type: ignore[call-arg]  # on purpose
    with pytest.raises(TypeError, match=r"Capabilities has no promise 'replic'; did you mean 'replica'\?"):
        Capabilities(replic=ReplicaPromises())  # type: ignore[call-arg]  # on purpose
    with pytest.raises(
        TypeError,
        match=r"CollectivePromises has no promise 'no_sync'; it is a promise of ReplicaPromises\.replica_methods",
    ):
        CollectivePromises(no_sync=True)  # type: ignore[call-arg]  # on purpose


def test_a_misspelt_member_names_the_right_one() -> None:
    with pytest.raises(AttributeError, match="CallForm has no member 'SUBGROUP'; did you mean 'SUBGROUPS'\\?"):
        CallForm.SUBGROUP  # type: ignore[attr-defined]  # noqa: B018  # on purpose
    with pytest.raises(ValueError, match="CallForm has no member 'sub_groups'; did you mean 'subgroups'\\?"):
        CollectivePromises(call_forms={"sub_groups"})  # type: ignore[arg-type]  # on purpose
    with pytest.raises(TypeError, match=r"subgroups'; it is a promise of CollectivePromises.call_forms"):
        CollectivePromises(subgroups=True)  # type: ignore[call-arg]  # on purpose
    with pytest.raises(AttributeError, match=r"collectives has no promise 'subgroop'; did you mean 'subgroups'\?"):
        needs.collectives.subgroop  # noqa: B018
    with pytest.raises(ValueError, match="is promised or not; it takes no value"):
        needs.collectives.subgroups("yes")
    with pytest.raises(TypeError, match="subgroups must be True or False, got 'yes'"):
        TYPICAL.but(subgroups="yes")


def test_a_member_is_changed_by_its_own_name_and_any_set_may_be_given() -> None:
    promised = Capabilities(collectives=CollectivePromises(call_forms={CallForm.SUBGROUPS}))
    assert hash(promised) == hash(promised.but(in_place=False))
    assert promised.but(in_place=True).collectives.call_forms == {CallForm.SUBGROUPS, CallForm.IN_PLACE}
    assert promised.without(["subgroups"]).collectives.call_forms == frozenset()
    assert promised.but(call_forms=frozenset(CallForm), subgroups=False).has(CallForm.IN_PLACE)
    assert not promised.but(call_forms=frozenset(CallForm), subgroups=False).has(CallForm.SUBGROUPS)
