"""Programs that compare implementations in turns: what they print, not how fast it was."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner
from socket_ranks import on_ranks

from ddpcheck.values import Array
from ddpcheck_benchmarks import compare_steps
from ddpcheck_benchmarks.compared import MEMORY, Compared, of_memory, plain, take_turns
from ddpcheck_implementations.numpy_sockets.communicator import Communicator


def test_steps_of_all_are_compared_with_the_last() -> None:
    words = ["numpy_sockets", "numpy_sockets_tcp", "--model", "small", "--turns", "1", "--steps", "1"]
    done = CliRunner().invoke(compare_steps.main, words, catch_exceptions=False)
    rows = [line.strip("| ").split(" | ") for line in done.output.splitlines() if line.startswith("| numpy")]
    assert [row[0] for row in rows] == words[:2]
    for row in rows:
        assert all(float(cell) > 0 for cell in row[1:5]), row
    assert rows[1][-1] == "1.00 (1.00 to 1.00)"


def test_columns_that_like_the_same_arrays_share_one_and_do_not_meet_in_it() -> None:
    made: list[int] = []

    def counted(count: int) -> np.ndarray:
        made.append(count)
        return plain(count)

    def triple(array: np.ndarray) -> None:
        np.multiply(array, 3, out=array)  # as if rank 1, which has twice as much, were there

    compared = {name: Compared(counted, triple) for name in ("one", "other")} | {MEMORY: Compared(counted, np.copy)}
    taken = take_turns(compared, lambda: None, 0, 2, [4, 4096], 2)
    assert made == [1, 1024]
    assert all(len(times) == 2 for by_size in taken.values() for times in by_size.values())


def test_a_wrong_sum_is_an_error_that_names_whose_it_is() -> None:
    right = Compared(plain, lambda array: np.multiply(array, 3, out=array))
    wrong = Compared(plain, lambda array: None)
    with pytest.raises(AssertionError, match="wrong: 4 of 4 elements are wrong"):
        take_turns({"right": right, "wrong": wrong}, lambda: None, 0, 2, [16], 1)


def test_memory_reads_and_writes_every_element_of_all_ranks_once() -> None:
    def program(communicator: Communicator) -> Array:
        compared = of_memory(communicator)
        array = compared.array(5)
        array[:] = communicator.rank + 1
        communicator.barrier()
        compared.reduce(array)
        communicator.barrier()
        return array

    for rank, array in enumerate(on_ranks(3, program)):
        assert array.tolist() == [-(rank + 1)] * 5
