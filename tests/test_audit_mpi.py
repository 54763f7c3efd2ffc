"""Audits of NumPy scripts over mpi4py: joined batches, arrays found in variables, the mirror's communicator."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from ddpcheck.audit.audit_in_tests import audit
from ddpcheck.audit.mpi.arrays import found_in_frames
from ddpcheck.audit.mpi.batches import Misfit, put_together
from ddpcheck.audit.mpi.buffer_arguments import array_of
from ddpcheck.audit.script_kinds import MPI, TORCH, kind_of
from ddpcheck.cli import main

SCRIPTS = Path(__file__).parent / "audit" / "scripts"
needs_mpi = pytest.mark.skipif(MPI.unavailable() is not None, reason=MPI.unavailable() or "")


def test_batches_put_together() -> None:
    a = {"x": np.arange(2.0), "y": (np.ones((3, 2)), ["a", "b"]), "pad": 0}
    b = {"x": np.arange(3.0), "y": (np.ones((3, 3)), ["c", "d", "e"]), "pad": 0}
    made = put_together([a, b], (2, 3), 1)
    assert made["x"].tolist() == [2, 0, 1, 0, 1]
    assert made["y"][0].shape == (3, 5)
    assert made["y"][1] == ["e", "a", "b", "c", "d"]
    assert made["pad"] == 0


@pytest.mark.parametrize(
    ("a", "b"), [(np.zeros((2, 3)), np.zeros((2, 4))), ((np.zeros(2), 1), (np.zeros(2), 2)), ({"x": 1}, {"y": 1})]
)
def test_batches_that_do_not_fit(a: object, b: object) -> None:
    with pytest.raises(Misfit):
        put_together([a, b], (2, 2))


def test_arrays_are_found_once_by_their_path() -> None:
    parameters = {"w": np.ones((2, 2)), "count": np.ones(2, int)}
    model = SimpleNamespace(bias=np.zeros(3), weight=parameters["w"], rate=0.5)
    batch = [np.ones(4)]
    found = found_in_frames(sys._getframe(), batch)
    assert list(found.arrays) == ["parameters['w']", "model.bias"]
    assert found.containers["model.bias"] == "model"
    assert found.numbers["model.rate"] == model.rate


def test_buffers_of_mpi4py() -> None:
    values = np.arange(6.0).reshape(2, 3).T
    flat = array_of([values, 4, "type"])
    assert flat is not None
    assert flat.tolist() == [0, 1, 2, 3]
    assert np.shares_memory(flat, values)
    assert array_of(None) is None
    assert array_of(-1) is None


@needs_mpi
def test_the_value_in_place_has_no_array() -> None:
    from mpi4py.MPI import IN_PLACE

    assert array_of(IN_PLACE) is None


def test_the_imports_of_a_script_choose_its_engine(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("from mpi4py import MPI\nimport helper\n")
    assert kind_of((str(script),)) is MPI
    (tmp_path / "helper.py").write_text("import torch\n")
    assert kind_of((str(script),)) is TORCH


def test_a_script_without_mpi_is_told_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train.py"
    script.write_text("from mpi4py import MPI\n")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = CliRunner().invoke(main, ["audit", str(script)])
    assert result.exit_code == 2
    assert "pip install mpi4py" in result.output


@needs_mpi
def test_a_script_without_marks_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.write_text("from mpi4py import MPI\nprint(MPI.COMM_WORLD.allreduce(1))\n")
    audited = audit(str(script))
    assert audited.page.startswith("NOT JUDGED")
    assert "ddpcheck.audit.batch" in audited.page


@needs_mpi
def test_rank_that_raises_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.write_text("from mpi4py import MPI\nif MPI.COMM_WORLD.rank:\n    raise ValueError('no data')\n")
    audited = audit(str(script))
    assert audited.causes == ("script-raised",), audited.page
    assert "no data" in audited.page


@needs_mpi
def test_the_mirror_multiplies_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of identical ranks, in every form of the call: the script asserts them, on N ranks and in each mirror."""
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(
        """
import numpy as np
from mpi4py import MPI
import ddpcheck.audit

comm = MPI.COMM_WORLD
w = np.zeros(4)
for step in range(8):
    x = ddpcheck.audit.batch(np.random.default_rng([step, comm.rank]).normal(size=(2, 4)))
    g = x.mean(0)
    n = comm.size
    assert comm.Dup().Get_size() == comm.allreduce(1) == n == len(comm.allgather(1))
    assert comm.allreduce(2, op=MPI.MAX) == 2 and comm.allreduce([1]) == [1] * n
    out = np.empty((n, 3))
    comm.Allgather(np.arange(3.0), out)
    assert (out == np.arange(3.0)).all()
    part = np.empty(2)
    comm.Scatter(np.arange(2.0 * n) if comm.rank == 0 else None, part)
    assert part[0] == 2 * comm.rank
    comm.Reduce_scatter_block(np.ones(2 * n), part)
    assert (part == n).all()
    request = comm.Iallreduce(MPI.IN_PLACE, g)
    request.Wait()
    comm.Ibarrier().Wait()
    assert comm.bcast("a") == "a" and comm.scan(1) == comm.rank + 1
    w += g / n
"""
    )
    audit(str(script)).holds()


@needs_mpi
def test_ranks_that_are_ended_early_leave_no_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        """
import os
import numpy as np
from mpi4py import MPI
from pathlib import Path
import ddpcheck.audit
from ddpcheck.launchers.mpi_segments import segments_of

w = np.zeros(4)
for step in range(1000):
    x = ddpcheck.audit.batch(np.full((2, 4), 2.0 * step + MPI.COMM_WORLD.rank))
    w -= 0.1 * MPI.COMM_WORLD.allreduce(x.mean(0)) / MPI.COMM_WORLD.size
    Path(f"mapped-{os.getpid()}").write_text("\\n".join(name for name, _ in segments_of()))
"""
    )
    audit("train.py").holds()
    mapped = {name for path in tmp_path.glob("mapped-*") for name in path.read_text().split()}
    assert [name for name in sorted(mapped) if Path(name).exists()] == []


def test_tour_names_requirements_of_its_audit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.console import Console

    from ddpcheck.cli import tour

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert tour._audit(Console(width=120)) == 0
    assert "pip install torch" in capsys.readouterr().out
