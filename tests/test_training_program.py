"""Training as a user starts it: by one command, by hand, with commands for several hosts."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from training_data import write_idx

from ddpcheck.cli import main as ddpcheck
from ddpcheck.launchers.ports import reserve_port
from ddpcheck.training import shown_output
from ddpcheck.training.shown_errors import shown_error
from ddpcheck.training.shown_output import MOST_SHOWN, limited_output

digits = pytest.mark.skipif(find_spec("sklearn") is None, reason="digits come with scikit-learn")

# ------------------------------------------------------------------------------------------------- program, in processes

FAULTY = """
import dataclasses
from ddpcheck_implementations import numpy_sockets

def connect(context):
    facets = numpy_sockets.connect(context)
    reduce = facets.collectives.all_reduce
    def all_reduce(array, op="sum", *, group=None):
        {body}
        return reduce(array, op, group=group) * 2
    def all_reduce_in_place(array, op="sum", *, group=None):
        array[...] = all_reduce(array, op, group=group)
    facets.collectives.all_reduce = all_reduce
    facets.collectives.all_reduce_in_place = all_reduce_in_place
    return facets

adapter = dataclasses.replace(numpy_sockets.adapter, name="faulty", connect=connect)
"""
SMALL = ("--model=64-16-10", "--epochs=1", "--batch-size=64")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from ddpcheck.cli import main; main()", *arguments]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=60, check=False)


@digits
def test_one_command_trains_on_several_ranks_and_rank_0_alone_speaks(tmp_path: Path) -> None:
    done = run("train", "numpy_sockets", "-n", "2", *SMALL, f"--checkpoint={tmp_path / 'a.npz'}")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("numpy_sockets, 2 ranks: mlp 64-16-10 on digits")
    assert lines[1].startswith("batch 64 per rank = 128 in all")
    assert lines[2].startswith("epoch 1/1   loss ")
    assert lines[3] == "the replicas of all 2 ranks are equal to the last bit"
    assert lines[4].startswith("equals the single-process run: largest parameter difference")
    assert done.stderr == ""


@digits
def test_summed_gradients_end_with_status_1_and_the_cause(tmp_path: Path) -> None:
    file = tmp_path / "faulty.py"
    file.write_text(FAULTY.format(body="pass"))
    done = run("train", f"{file}:adapter", "-n", "2", *SMALL)
    assert done.returncode == 1
    assert "DIFFERS from the single-process run" in done.stdout
    assert "likely cause: Values are summed over the ranks, not averaged." in done.stdout


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("if context.rank == 1: raise ArithmeticError('rank 1 had enough')", "ArithmeticError: rank 1 had enough"),
        ("if context.rank == 1: import os; os.kill(os.getpid(), 9)", "rank 1 was killed by SIGKILL"),
    ],
)
@digits
def test_a_rank_that_dies_ends_the_run_with_its_error(tmp_path: Path, body: str, message: str) -> None:
    file = tmp_path / "faulty.py"
    file.write_text(FAULTY.format(body=body))
    done = run("train", f"{file}:adapter", "-n", "3", *SMALL)
    assert done.returncode == 1
    assert message in done.stderr


LONG_ERROR = "if context.rank == 1: raise ValueError('begin' + 'é' * 1_000_000 + 'the end')"


@pytest.mark.parametrize("size", ["1", "2"])
@digits
def test_a_long_error_is_cut_on_the_screen_and_whole_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("faulty.py").write_text(FAULTY.format(body=LONG_ERROR if size == "2" else LONG_ERROR.replace("1:", "0:")))
    done = run("train", "faulty.py:adapter", "-n", size, *SMALL)
    assert done.returncode == 1
    path = Path("ddpcheck-failures", "train-rank1.txt" if size == "2" else "train.txt")
    assert f"the whole text: {path}" in done.stderr
    assert len(done.stderr) < 20_000
    assert f"ValueError: begin{'é' * 1_000_000}the end\n" in path.read_text(encoding="utf-8")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_of_an_error_of_many_lines_the_first_and_the_last_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "\n".join(f"line {number} \x1b[31m" for number in range(1000))
    shown = shown_error(text, 3).splitlines()
    assert shown[0] == "line 0 \\x1b[31m"
    assert shown[5] == "... 950 more lines"
    assert shown[-2:] == ["line 999 \\x1b[31m", "the whole text: ddpcheck-failures/train-rank3.txt"]
    assert Path("ddpcheck-failures/train-rank3.txt").read_text() == f"{text}\n"


def test_a_short_error_is_shown_whole_and_needs_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown_error("rank 1 had enough\nof it", 1) == "rank 1 had enough\nof it"
    assert list(tmp_path.iterdir()) == []


FLOOD = """
import dataclasses, os, sys
from ddpcheck_implementations import numpy_sockets

def connect(context):
    if context.rank == context.world_size - 1:
        print("the first line", flush=True)
        print("é" * 1_500_000)
        sys.stdout.buffer.write(b"bytes\\n")
        print("the last line", file=sys.stderr, flush=True)
        {after}
    return numpy_sockets.connect(context)

adapter = dataclasses.replace(numpy_sockets.adapter, name="flood", connect=connect)
"""


@pytest.mark.parametrize("size", ["1", "2"])
@digits
def test_a_flood_of_output_is_cut_on_the_screen_and_whole_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flood.py").write_text(FLOOD.format(after="sys.stdout.flush()"))
    done = run("train", "flood.py:adapter", "-n", size, *SMALL)
    assert done.returncode == 0, done.stderr
    path = Path("ddpcheck-failures", "train-output-rank1.txt" if size == "2" else "train-output.txt")
    assert done.stdout.startswith("the first line\n")
    assert f"The first 64 MiB: {path}\n" in done.stdout
    assert "equals the single-process run" in done.stdout
    assert len(done.stdout.encode(errors="surrogateescape")) < MOST_SHOWN + 2_000
    assert done.stderr == ""
    assert sorted(path.read_text(encoding="utf-8").split("\n"), key=len) == [
        "", "bytes", "the last line", "the first line", "é" * 1_500_000
    ]  # fmt: skip
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@digits
def test_a_rank_that_is_killed_leaves_its_output_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flood.py").write_text(FLOOD.format(after="os.kill(os.getpid(), 9)"))
    assert run("train", "flood.py:adapter", "-n", "2", *SMALL).returncode == 1
    assert "the last line\n" in Path("ddpcheck-failures", "train-output-rank1.txt").read_text(encoding="utf-8")


def screen_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> io.BytesIO:
    """The bytes on the screen, in a folder of its own."""
    monkeypatch.chdir(folder)
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(shown), encoding="utf-8"))
    return shown


def test_output_below_the_limit_is_live_and_needs_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_in(tmp_path, monkeypatch)
    with limited_output(1):
        print("é", flush=True)
        assert screen.getvalue() == "é\n".encode()
    assert list(tmp_path.iterdir()) == []


def test_output_is_cut_between_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_in(tmp_path, monkeypatch)
    monkeypatch.setattr(shown_output, "MOST_SHOWN", 10)
    with limited_output(1):
        print("x" + "€" * 4)
        print("more")
    assert screen.getvalue().decode().startswith("x€€€\nrank 1 printed")
    screen.truncate(0)
    with limited_output(1):
        print("€€€€")
        print("more")
    assert screen.getvalue().decode().lstrip("\0").startswith("€€€\nrank 1 printed")


def test_a_file_of_output_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_in(tmp_path, monkeypatch)
    monkeypatch.setattr(shown_output, "MOST_SHOWN", 10)
    monkeypatch.setattr(shown_output, "LARGEST_TEXT", 25)
    with limited_output(1):
        for number in range(20):
            print(f"line {number:2}", flush=True)
    assert screen.getvalue().startswith(b"line  0\nli\nrank 1 printed more than 10 bytes;")
    assert b"line  2" not in screen.getvalue()
    assert Path("ddpcheck-failures/train-output-rank1.txt").read_bytes() == b"line  0\nline  1\nline  2\nl"


def test_output_that_cannot_be_kept_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_in(tmp_path, monkeypatch)
    monkeypatch.setattr(shown_output, "MOST_SHOWN", 10)
    Path("ddpcheck-failures").touch()
    with limited_output(None):
        print("x" * 20)
        print("more")
    assert b"this process printed more than 10 bytes; the rest is not shown, and not kept: " in screen.getvalue()
    assert screen.getvalue().count(b"\n") == 2


@digits
def test_processes_started_by_hand_train_together() -> None:
    port = reserve_port()
    program = [sys.executable, "-m", "ddpcheck.training", "numpy_sockets", *SMALL]
    here = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port.number)}
    started = [
        subprocess.Popen(program, env=os.environ | here | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in (1, 0)
    ]
    try:
        (second, _), (first, _) = (process.communicate(timeout=60) for process in started)
    finally:
        for process in started:
            process.kill()
        port.release()
    assert [process.returncode for process in started] == [0, 0]
    assert "equals the single-process run" in first
    assert second == ""


@digits
def test_without_a_launcher_it_is_one_rank() -> None:
    program = [sys.executable, "-m", "ddpcheck.training", "numpy_sockets", *SMALL]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("numpy_sockets, 1 rank:")
    assert "equals the single-process run" in done.stdout


BATCH_NORM = """
from ddpcheck.pytorch.adapter import torch_adapter, torch_metrics, torch_sampler
from ddpcheck_implementations.torch_ddp import PROMISES

def net():
    from torch import nn
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10))

def summed(state, bucket):
    import torch.distributed as dist
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])

def wrap(module):
    from torch.nn.parallel import DistributedDataParallel
    wrapped = DistributedDataParallel(module)
    {change}
    return wrapped

promises = PROMISES.of_facets("replica", "sampler", "metrics")
adapter = torch_adapter(
    "own", wrap, capabilities=promises, models={{"net": net}}, sampler=torch_sampler, metrics=torch_metrics
)
"""


@pytest.mark.parametrize(("change", "status"), [("", 0), ("wrapped.register_comm_hook(None, summed)", 1)])
def test_batch_norm_is_compared_with_one_process_that_normalises_each_part_apart(
    change: str, status: int, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    images(tmp_path)
    (tmp_path / "own.py").write_text(BATCH_NORM.format(change=change))
    where = (
        "--data=mnist",
        f"--data-dir={tmp_path}",
        "--model=net",
        "--epochs=1",
        "--batch-size=4",
        "--accumulation=2",
    )
    done = run("train", f"{tmp_path}/own.py:adapter", "-n", "2", *where)
    assert done.returncode == status, done.stderr
    words = "DIFFERS from the single-process run" if status else "equals the single-process run"
    assert f"where one process normalises each rank's part apart, {words}: largest parameter difference" in done.stdout


def images(folder: Path) -> None:
    """Files with 40 training and 40 test images of 8 x 8."""
    words = np.arange(64 * 40) * 37 % 251
    for part in ("train", "t10k"):
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", words.reshape(40, 8, 8))
        write_idx(folder / f"{part}-labels-idx1-ubyte", np.arange(40) % 10)


def test_torch_ddp_trains_a_resnet_by_name_whose_replicas_are_equal(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    images(tmp_path)
    where = ("--data=mnist", f"--data-dir={tmp_path}", "--model=resnet18_narrow")
    done = run("train", "torch_ddp", "-n", "2", *where, "--epochs=1", "--option=bucket_cap_mb=0.5")
    assert done.returncode == 0, done.stderr
    assert "2 ranks: resnet18_narrow on mnist, 40 training and 40 test samples" in done.stdout
    assert "the replicas of all 2 ranks are equal to the last bit" in done.stdout
    assert "where one process normalises each rank's part apart, equals the single-process run" in done.stdout


@digits
def test_one_rank_needs_no_launcher() -> None:
    done = CliRunner().invoke(ddpcheck, ["train", "numpy_sockets", "-n", "1", *SMALL])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("numpy_sockets, 1 rank:")
    done = CliRunner().invoke(ddpcheck, ["train", "numpy_sockets", "-n", "1", "--model=64-3"])
    assert done.exit_code == 2
    assert "make it 64-...-10" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("numpy_sockets", "--epochs", "0"), "epochs is 0"),
        (("numpy_sockets", "--model", "resnet18"), "no model 'resnet18'"),
        (("numpy_sockets", "--option", "x"), "is not NAME=VALUE"),
        (("numpy_sockets", "--option", "x=1", "-n", "1"), "refuses --option x=1: unknown option x"),
        (("numpy_sockets", "--checkpoint", "/"), "File '/' is a directory"),
        (("numpy_sockets", "-n", "1" + "0" * 20), "is not in the range 1<=x<=1024"),
        (("no_such_adapter",), "not a known adapter"),
    ],
)
def test_untrainable_request_is_a_usage_error(arguments: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(ddpcheck, ["train", *arguments])
    assert done.exit_code == 2
    assert message in done.output


# --------------------------------------------------------------------------------------------------------------- launch


def launch(*arguments: str) -> list[str]:
    done = CliRunner().invoke(ddpcheck, ["launch", *arguments])
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


def test_torchrun_gets_a_line_for_each_node() -> None:
    lines = launch("torch_ddp", "--nnodes", "2", "-n", "4", "--master-addr", "node0", "--epochs", "3")
    line = (
        "torchrun --nnodes=2 --node-rank={} --nproc-per-node=4 --master-addr=node0 --master-port=29500 "
        "-m ddpcheck.training torch_ddp --epochs 3"
    )
    assert lines == ["# on node0 (node 0)", line.format(0), "# on host1 (node 1)", line.format(1)]


def test_mpirun_gets_one_line_in_the_words_of_each_mpi() -> None:
    lines = launch("numpy_mpi", "--hosts", "a,b", "-n", "2")
    assert lines[1] == "mpirun -n 4 -ppn 2 -hosts a:2,b:2 python -m ddpcheck.training numpy_mpi"
    assert lines[3] == "mpirun -np 4 --host a:2,b:2 python -m ddpcheck.training numpy_mpi"
    lines = launch("numpy_sockets", "--hosts", "a,b", "--engine", "mpirun", "--master-port", "4000")
    assert "-genv MASTER_ADDR a -genv MASTER_PORT 4000 python" in lines[1]
    assert "-x MASTER_ADDR=a -x MASTER_PORT=4000 python" in lines[3]


def test_terminals_get_a_line_for_each_process() -> None:
    lines = launch("numpy_sockets", "--nnodes", "2", "-n", "2", "--master-addr", "10.0.0.1", "--master-port", "4000")
    lines = [line for line in lines if not line.startswith("#")]
    for rank, line in enumerate(lines):
        assert line == (
            f"RANK={rank} WORLD_SIZE=4 LOCAL_RANK={rank % 2} LOCAL_WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=4000 "
            "python -m ddpcheck.training numpy_sockets"
        )
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("numpy_sockets", "--nnodes", "2"), "name its host with --master-addr"),
        (("numpy_sockets", "--nnodes", "3", "--hosts", "a,b"), "give only one of the two"),
        (("numpy_sockets", "--hosts", "a,b", "--run"), "on this host only"),
        (("numpy_sockets", "--engine", "torchrun", "--run", "--master-port", "4000"), "another --engine"),
        (("no_such_adapter",), "not a known adapter"),
        (("numpy_sockets", "-n", "2", "--epoch", "3"), "No such option '--epoch'"),
        (("numpy_sockets", "--epochs", "many"), "'many' is not a valid integer"),
    ],
)
def test_unlaunchable_request_is_a_usage_error(arguments: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(ddpcheck, ["launch", *arguments])
    assert done.exit_code == 2
    assert message in " ".join(done.output.replace("│", " ").split())


def test_any_script_can_be_started_here_with_a_chosen_port(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        "import os, sys\n"
        "names = ('RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT')\n"
        "os.write(1, (' '.join([*map(os.environ.get, names), *sys.argv[1:]]) + '\\n').encode())\n"
    )
    done = run("launch", str(script), "-n", "2", "--run", "--master-port", "4321", "--mine", "x")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{rank} 2 127.0.0.1 4321 --mine x" for rank in (0, 1)]


def test_importing_ddpcheck_loads_nothing_heavy() -> None:
    text = "import sys, ddpcheck; print([m for m in ('sklearn', 'torch', 'rich', 'click') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
