"""A failing Job as a script: it shows the fault wherever it runs, and passes for a correct implementation."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from chosen_faults import some

from ddpcheck import Diagnosis, Job, Verdict, mlp
from ddpcheck import job as ops
from ddpcheck.causes import Cause
from ddpcheck.contract.allowed_names import SCORES
from ddpcheck.job import (
    Aggregate,
    AllGather,
    AllReduce,
    Backward,
    Barrier,
    Broadcast,
    Calls,
    Close,
    DataSpec,
    Kill,
    ReduceScatter,
    ResumeSampling,
    Rounds,
    Sample,
    Score,
    SendRecv,
    Sleep,
    Start,
    TensorSpec,
    Wait,
)
from ddpcheck.launchers.mpi import Mpi, Mpiexec
from ddpcheck.launchers.multiprocess import Method, Multiprocessing
from ddpcheck.launchers.processes import Processes
from ddpcheck.numerics import same_bits
from ddpcheck.running.adapter_lookup import reference_of
from ddpcheck.running.failure_files import write_script_beside
from ddpcheck.standalone import _WRITERS, FailedCheck, NoScript, script, write_script
from ddpcheck.standalone.comparison import since
from ddpcheck.standalone.literals import bound, literal
from ddpcheck.standalone.text import FORMULAS, Text
from ddpcheck_implementations.faulty import faults, unusual
from ddpcheck_properties.collectives.many_calls import Kind

ROOTS = [str(Path(__file__).parents[1] / name) for name in ("harness", "implementations", "properties")]
PLUGGING_IN = (Path(__file__).parents[1] / "docs" / "plugging-in.md").read_text(encoding="utf-8")
RIGHT = "ddpcheck_implementations.numpy_sockets:adapter"
TOLD = FailedCheck(
    "check_it", "What must be, is.", Diagnosis('got """2""", but should be 1', (Cause("a back\\slash"),))
)
JOBS = {
    "ring-tail-dropped": (Job(2, (AllReduce(TensorSpec((5,))),)), "all_reduce sum: WRONG"),
    "permutation-per-rank": (Job(2, (Sample(32),)), "every sample is there: WRONG"),
    "metric-mean-of-means": (Job(2, (Aggregate((1.0, 4.0), (1, 63)),)), "should be 3.953125"),
    "epoch-set-once": (Job(2, (Sample(32, (0, 1), retold=True),)), "as in a sampler that was only read: WRONG"),
    "first-metric-only": (
        Job(2, (Aggregate((1.0, 4.0), (1, 63), ("loss", "accuracy")),)),
        "accuracy, the mean over all samples: WRONG",
    ),
    "scores-weighted-like-means": (Job(2, (Score("rmse", ((0, 1, 2), (3,))),)), "rmse: WRONG"),
    "sampler-s-padding-counts-twice": (Job(2, (Score("f1_macro", ((0, 1), (2, 0))),)), "f1_macro: WRONG"),
    "rows-of-padding-are-scored": (Job(2, (Score("accuracy", ((0, 1), (2, -1))),)), "accuracy: WRONG"),
    "perplexity-leaves-out-nan": (Job(2, (Score("perplexity", ((0, 1), (2, 3)), poisoned=3),)), "perplexity: WRONG"),
    "score-of-indices-in-32-bits": (Job(2, (Score("rmse", ((0, 2), (1, 3)), apart=1 << 32),)), "rmse: WRONG"),
    "mean-over-the-ranks-of-the-host": (
        Job(2, (AllReduce(TensorSpec((5,)), "mean"),), start=Start(hosts=(1, 1))),
        "all_reduce mean: WRONG",
    ),
    "messages-are-views-of-bytes": (
        Job(2, (SendRecv(TensorSpec((3,)), ((0, 1),)),)),
        "result of recv can be written to: WRONG",
    ),
    "fp16-predivide-underflow": (
        Job(2, (AllReduce(TensorSpec((300,), "float16", "tiny", 4), "mean"),)),
        "all_reduce mean: WRONG",
    ),
    "subnormals-flushed": (Job(2, (AllReduce(TensorSpec((300,), "float64", "tiny", 4)),)), "all_reduce sum: WRONG"),
    "room-for-few-nonzeros": (Job(2, (Broadcast(TensorSpec((600,), values="sparse", seed=1)),)), "broadcast: WRONG"),
    "metrics-matched-by-their-place": (
        Job(2, (Aggregate((1.0, 4.0), (1, 63), ("loss", "accuracy"), turned=True),)),
        "loss, the mean over all samples: WRONG",
    ),
    "seeds-the-global-generator": (Job(2, (Rounds((Sample(32),)),)), "settings that changed: WRONG"),
    "thread-for-each-call": (
        Job(2, (Rounds((AllReduce(TensorSpec((5,)), wait=False), Wait(0))),)),
        "left behind by every round: WRONG",
    ),
    "every-epoch-cut-after-resume": (Job(2, (ResumeSampling(20, (3, 2)),)), "epoch 1 in the last sampler: WRONG"),
    "one-state-for-all-ranks": (Job(2, (ResumeSampling(20, (3,), 2, 3, ahead=1),)), "epoch 2 in pieces: WRONG"),
}
EVERYTHING = Job(
    2,
    (
        *(
            AllReduce(TensorSpec((2, 3), layout=layout, seed=1), "max")
            for layout in ("F", "strided", "reversed", "offset", "columns", "repeated")
        ),
        AllReduce(TensorSpec((4,), "float64", "real"), "mean"),
        AllReduce(TensorSpec((), "int64"), "prod", wait=False),
        Barrier(),
        Wait(7),
        *(AllReduce(TensorSpec((9,), dtype, "tiny", 4), "mean") for dtype in ("float32", "float64")),
        *(AllReduce(TensorSpec((300,), values=holding, seed=1)) for holding in ("sparse", "even", "patchy")),
        Broadcast(TensorSpec((3,), values="special"), 1),
        AllGather(TensorSpec((0, 2)), (0, 1)),
        ReduceScatter(TensorSpec((400,), values="real")),
        AllReduce(TensorSpec((2,)), group=(1,)),
        *(AllReduce(TensorSpec((2, 3), layout=layout, seed=1), "max") for layout in ("mixed", "varied")),
        *(AllReduce(TensorSpec((2, 3), layout="shared"), each) for each in ("max", "sum")),
        Broadcast(TensorSpec((2, 3), layout="shared"), 1),
        SendRecv(TensorSpec((3,), "int32"), ((0, 1), (1, 0))),
        Sleep(0, 0.01),
        Sample(20, (0, 1, None), seed=3),
        Sample(20, (0,), seed=4, drop_last=True),
        Sample(5, (0, 1), shuffle=False),
        Sample(20, (0, 1), disturbed=0, peeks=(3, 1), beside=True, retold=True),
        ResumeSampling(20, (2, 0, 3), seed=3),
        ResumeSampling(5, (9,), told=False),
        ResumeSampling(20, (), then=None, used=True),
        ResumeSampling(20, (3, 1), used=True, ahead=1),
        Aggregate((0.1, 0.7), (3, 4), ("loss", "accuracy")),
        Aggregate((1.0, 4.0), (2, 2), ("loss", "accuracy"), (1, "accuracy")),
        Aggregate((1.0, 4.0), (1, 63), ("loss", "accuracy"), turned=True),
        Aggregate((1.0, 2.0), (0, 0)),
        *(Score(name, ((2, 0, 2), (5, -1, 0)), 2, values="real") for name in sorted(SCORES)),
        Score("rmse", ((), ())),
        Score("perplexity", ((0,), (1, 2)), poisoned=0),
        *(Calls(kind, 3, reduction="mean", strided=number % 2 == 1) for number, kind in enumerate(get_args(Kind))),
        Rounds((Barrier(),), times=1, rounds=2),
        Close(),
    ),
)


def fault(name: str) -> str:
    return reference_of(next(found for found in faults() if found.name == name).adapter)


def run(
    *command: str, python_path: list[str] = ROOTS, cwd: Path | None = None, tmp: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the script, with a port for engines that do not choose one. tmp: for temporary files."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(python_path), "MASTER_PORT": port}
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
    env |= {} if tmp is None else {"TMPDIR": str(tmp)}
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("name", some(JOBS, 0))
def test_the_fault_shows_and_a_right_one_passes(tmp_path: Path, name: str) -> None:
    job, words = JOBS[name]
    path = write_script(tmp_path / "shows.py", fault(name), job, TOLD)
    wrong = run(sys.executable, str(path))
    assert wrong.returncode == 1, wrong.stdout + wrong.stderr
    assert words in wrong.stdout
    assert "\nWRONG: " in wrong.stdout
    right = run(sys.executable, str(path), RIGHT)
    assert right.returncode == 0, right.stdout + right.stderr
    assert "\nok: 0 of " in right.stdout


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_ranks_start_as_those_did_that_failed(tmp_path: Path, method: Method) -> None:
    job = Job(2, (AllGather(TensorSpec((3,))), Barrier()))
    name, launcher = fault("file-named-at-import"), Multiprocessing(method)
    path = write_script(tmp_path / "shows.py", name, job, TOLD, launcher)
    done = run(sys.executable, str(path))
    assert done.returncode == int(method == "fork"), done.stdout + done.stderr
    assert ("WRONG" in done.stdout) == (method == "fork")
    alone = write_script(tmp_path / "alone.py", name, job, TOLD, Processes())
    assert run(sys.executable, str(alone)).returncode == 0


def test_rounding_at_every_hop_is_told_from_rounding_once(tmp_path: Path) -> None:
    job = Job(3, (AllReduce(TensorSpec((300,), "float16", "real", 3), "mean"),))
    path = write_script(tmp_path / "shows.py", fault("per-hop-rounding"), job, TOLD)
    wrong = run(sys.executable, str(path))
    assert wrong.returncode == 1
    assert "all_reduce mean: WRONG" in wrong.stdout
    once = next(found.adapter for found in unusual() if found.name == "wide-accumulator")
    right = run(sys.executable, str(path), reference_of(once))
    assert right.returncode == 0, right.stdout + right.stderr


def test_every_operation_passes_on_a_right_one(tmp_path: Path) -> None:
    path = write_script(tmp_path / "shows.py", RIGHT, EVERYTHING, TOLD)
    done = run(sys.executable, str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WRONG" not in done.stdout
    assert {op.kind for op in EVERYTHING.operations} == {*_WRITERS, "rounds"}


@pytest.mark.parametrize(
    "engine", [("mpirun", "-n", "2", sys.executable), ("torchrun", "--nproc-per-node", "2")], ids=["mpirun", "torchrun"]
)
def test_it_runs_under_the_engines_that_people_use(tmp_path: Path, engine: tuple[str, ...]) -> None:
    here = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    if shutil.which(engine[0], path=here) is None:
        pytest.skip(f"{engine[0]} is not installed")
    job, words = JOBS["ring-tail-dropped"]
    path = write_script(tmp_path / "shows.py", fault("ring-tail-dropped"), job, TOLD)
    done = run(*engine, str(path), tmp=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.count(words) == 2, done.stdout + done.stderr
    assert not list(tmp_path.glob("shows-*"))


def test_the_script_has_the_flags_of_the_mpi_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddpcheck.standalone.find_mpi", lambda: Mpi("/opt/bin/mpiexec", "openmpi", "5.0"))
    path = write_script(tmp_path / "shows.py", RIGHT, Job(2, (Barrier(),)), TOLD, Mpiexec())
    flags = ["--allow-run-as-root"] * (os.geteuid() == 0) + ["--oversubscribe", "--bind-to", "none", "-n", "2"]
    assert f"START = {['mpiexec', *flags]}".replace("'", '"') in path.read_text(encoding="utf-8")


def test_the_folder_of_a_run_is_no_other_runs() -> None:
    """The process id of its parent may be one that left a folder behind."""
    with subprocess.Popen(["sleep", "60"]) as process:
        began = since(process.pid)
        assert began
        assert began == since(process.pid)
        assert began != since(os.getppid())
        process.kill()


@pytest.mark.parametrize("broken", [True, False])
def test_ddpcheck_need_not_be_installed(tmp_path: Path, broken: bool) -> None:
    text = PLUGGING_IN.partition("<!-- example: plain -->")[2].partition("```python\n")[2].partition("```")[0]
    assert "total += link.recv()" in text
    adapter = tmp_path / "star.py"
    adapter.write_text(text.replace("total += link.recv()", "link.recv()") if broken else text, encoding="utf-8")
    path = write_script(tmp_path / "shows.py", f"{adapter}:adapter", Job(3, (AllReduce(TensorSpec((2,))),)), TOLD)
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "ddpcheck.py").write_text("raise ImportError('not installed here')", encoding="utf-8")
    done = run(sys.executable, str(path), python_path=[str(hidden)], cwd=tmp_path)
    assert done.returncode == int(broken), done.stdout + done.stderr
    assert done.stdout.count("all_reduce sum: WRONG" if broken else "all_reduce sum: ok") == 3


def test_a_rank_that_hangs_is_named_and_ended(tmp_path: Path) -> None:
    path = write_script(
        tmp_path / "shows.py", fault("scalar-all-reduce-hangs"), Job(2, (AllReduce(TensorSpec(())),) * 2), TOLD
    )
    path.write_text(path.read_text().replace("DEADLINE = 10.0", "DEADLINE = 0.5"))
    done = run(sys.executable, str(path))
    assert done.returncode == 1
    assert "rank 0: WRONG, it hangs in program(); ended after 0.5 s" in done.stdout
    assert "collectives.all_reduce(argument" in done.stdout


def test_closing_without_end_shows(tmp_path: Path) -> None:
    job = Job(2, (AllReduce(TensorSpec(())), Sleep(1, 0.1), Close()))
    path = write_script(tmp_path / "shows.py", fault("close-waits-for-ever"), job, TOLD)
    path.write_text(path.read_text().replace("DEADLINE = 10.0", "DEADLINE = 0.5"))
    done = run(sys.executable, str(path))
    assert done.returncode == 1
    assert "facets.close and facets.close()" in done.stdout.partition("WRONG, it hangs in program()")[2]


def test_another_number_of_ranks_is_refused(tmp_path: Path) -> None:
    path = write_script(tmp_path / "shows.py", RIGHT, JOBS["ring-tail-dropped"][0], TOLD)
    done = run("env", "RANK=0", "WORLD_SIZE=3", sys.executable, str(path))
    assert "this script is for 2 ranks, but was started as 3" in done.stderr


def test_jobs_of_replicas_are_replayed(tmp_path: Path) -> None:
    job = Job(2, (Backward(((0, 1), (2, 3))),), mlp((2, 1)), data=DataSpec(4))
    with pytest.raises(NoScript, match=r"replayed by `ddpcheck replay FILE`"):
        script(RIGHT, job, TOLD)
    verdict = Verdict("x", 2, "check_gradients_equal_the_large_batch_exactly", "gradients", "failed", job=job)
    assert write_script_beside(tmp_path / "x.json", RIGHT, verdict) is None


def test_unsupported_jobs_have_no_script(tmp_path: Path) -> None:
    job = Job(2, (Kill(1),))
    with pytest.raises(NoScript, match=r"operation 0 \(kill\) has no plain form"):
        script(RIGHT, job, TOLD)
    verdict = Verdict("x", 2, "check_a", "sums", "failed", diagnosis=Diagnosis("wrong"), job=job)
    assert write_script_beside(tmp_path / "x.json", RIGHT, verdict) is None
    kinds = {operation.kind for operation in ops.Operation.__args__}
    assert {*_WRITERS} <= kinds


@pytest.mark.parametrize("kind", ["lattice", "real", "powers", "sparse", "even", "patchy"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64"])
def test_formulas_give_the_numbers_of_the_harness(kind: str, dtype: str) -> None:
    spec = TensorSpec((40, 5), dtype, kind, seed=7, spread=4, step=3)  # type: ignore[arg-type]  # one of the literals
    job = Job(3, (AllReduce(spec),))
    text = Text(job, next(iter(faults())).adapter.capabilities)
    name = text.tensor(spec)
    assert any(FORMULAS[kind].strip() == made.strip() for made in text.inputs)
    found: dict[str, list[object]] = {}
    exec("\n".join(["import numpy as np", *text.inputs]), found)
    assert all(same_bits(np.asarray(found[name][rank]), spec.on(rank)) for rank in range(3))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64"])
def test_literals_round_trip(dtype: str) -> None:
    for kind in ("special", "real"):
        array = TensorSpec((5, 7), dtype, kind).on(0)  # type: ignore[arg-type]  # one of the literals
        made = eval(literal(array), {"np": np})
        assert same_bits(made, array) or np.isnan(array).any()
        np.testing.assert_array_equal(np.signbit(made), np.signbit(array))
        np.testing.assert_array_equal(made, array)
    assert literal(np.zeros((0, 3), dtype)) == f'np.zeros((0, 3), "{dtype}")'


def test_bounds_are_rounded_up() -> None:
    for value in (1.23456e-7, 3.0, 0.0):
        assert value <= eval(bound(value)) <= value * 1.02
    assert bound(2.0) == "2.01"
    assert bound(float("inf")) == "np.inf"


def test_a_folder_that_another_user_can_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / f"ddpcheck-{os.geteuid()}").mkdir(mode=0o777)
    (tmp_path / f"ddpcheck-{os.geteuid()}").chmod(0o777)
    path = write_script(tmp_path / "shows.py", RIGHT, JOBS["ring-tail-dropped"][0], TOLD)
    done = subprocess.run(
        [sys.executable, str(path)],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "should be a folder that only this user can enter" in done.stdout + done.stderr


def test_any_name_of_a_metric_is_a_text(tmp_path: Path) -> None:
    names = ('"]; raise SystemExit(9)  # ', "two\nlines", "back\\slash", "µs {x}")
    job = Job(2, (Aggregate((1.0, 2.0), (1, 3), names=names),))
    path = write_script(tmp_path / "shows.py", RIGHT, job, TOLD)
    done = run(sys.executable, str(path), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
