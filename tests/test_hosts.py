"""Emulated hosts: namespaces that end by themselves, links with the given rate, and steps that wait."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ddpcheck.job import AllReduce, Job, TensorSpec
from ddpcheck.launchers.mpi import Mpi, Mpiexec, find_mpi
from ddpcheck.launchers.torchrun import Torchrun
from ddpcheck.models.spec import Delay, Linear, ModelSpec
from ddpcheck.running.adapter_lookup import resolve
from ddpcheck.session import Session
from ddpcheck_benchmarks import bench
from ddpcheck_benchmarks.hosts import launcher
from ddpcheck_benchmarks.hosts import network as networks
from ddpcheck_benchmarks.hosts.launcher import Hosts, cannot_carry
from ddpcheck_benchmarks.hosts.link import Fabric
from ddpcheck_benchmarks.hosts.namespace import Namespace
from ddpcheck_benchmarks.hosts.network import INTERFACE, Network, network
from ddpcheck_benchmarks.step_cases import StepCase
from ddpcheck_benchmarks.step_parts import step_parts

may_emulate = pytest.mark.skipif(networks.unavailable() is not None, reason=str(networks.unavailable()))
mpi_goes = pytest.mark.skipif(
    find_mpi() is None or find_spec("mpi4py") is None or cannot_carry(Mpiexec()) is not None,
    reason="needs mpi4py, and an MPI whose ranks can go to emulated hosts",
)
RATE = 125e6


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[Network]:
    with network(2, RATE) as hosts:
        yield hosts


@may_emulate
@pytest.mark.parametrize(
    ("name", "each"), [("numpy_sockets", 1), ("numpy_sockets", 2), pytest.param("numpy_mpi", 1, marks=mpi_goes)]
)
def test_ranks_on_two_hosts_meet_over_the_link_and_its_counter_sees_their_bytes(
    two_hosts: Network, name: str, each: int
) -> None:
    """With any number of ranks on each, two hosts need not send more than the array."""
    before = two_hosts.sent()
    count = 1 << 16
    with Session(name, 2 * each, launcher=Hosts(two_hosts, resolve(name)[0].launcher, each)) as session:
        trace = session.run(Job(2 * each, (AllReduce(TensorSpec((count,), "float32", "powers")),)))
    assert trace.completed
    for sent, earlier in zip(two_hosts.sent(), before, strict=True):
        assert 4 * count <= sent - earlier < 4 * count * 1.2  # headers, and the rendezvous


@may_emulate
def test_both_ends_of_a_link_are_shaped(two_hosts: Network) -> None:
    for place, device in ((two_hosts.hosts[1], INTERFACE), (two_hosts.switch, "data1")):
        words = ["tc", "qdisc", "show", "dev", device]
        shown = place.inside(
            lambda words=words: subprocess.run(words, capture_output=True, text=True, check=True).stdout
        )
        assert "tbf" in shown
        assert "rate 1Gbit" in shown


@may_emulate
def test_a_namespace_is_gone_with_its_owner_however_that_ends() -> None:
    program = (
        "import os, signal\n"
        "from ddpcheck_benchmarks.hosts.network import network\n"
        "with network(2, 1e8) as hosts:\n"
        "    print(*(os.stat(host.path).st_ino for host in (hosts.switch, *hosts.hosts)), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    made = {int(word) for word in done.stdout.split()}
    assert len(made) == 3
    left = set()
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            left.add(path.stat().st_ino)
        except OSError:
            continue
    assert not made & left
    assert "data0" not in subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout


@may_emulate
def test_only_what_is_done_inside_is_in_the_namespace() -> None:
    space = Namespace()
    try:
        assert space.inside(lambda: [name for _, name in socket.if_nameindex()]) == ["lo"]
        with pytest.raises(OSError, match=r"ip: .*nothing"):
            space.batch("ip", ["link set nothing up"])
        assert os.stat("/proc/thread-self/ns/net").st_ino != os.stat(space.path).st_ino  # noqa: PTH116
    finally:
        space.close()


def test_without_the_right_to_make_namespaces_there_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Namespace) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Namespace, "__init__", refuse)
    done = CliRunner().invoke(bench.command, ["numpy_sockets", "--link", "1Gbit/s"])
    assert done.exit_code == 2
    assert "network namespaces, which this process may not make" in done.output or "install iproute2" in done.output


def test_fabrics_are_read_as_written() -> None:
    assert Fabric.of("1Gbit/s", 1) == Fabric("1Gbit/s", 125e6, 1)
    assert Fabric.of("10GbE", 4).hosts(8) == 2
    assert Fabric.of("10GbE", 4).refuses(6) == "6 ranks do not fill hosts of 4"
    assert Fabric.of("10GbE", 4).refuses(2) is None
    with pytest.raises(ValueError, match="is not a rate"):
        Fabric.of("fast", 1)


def test_launcher_without_emulated_hosts_gives_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cannot_carry(Torchrun()) == "its ranks are started by torchrun, which does not support emulated hosts"
    monkeypatch.setattr(launcher, "find_mpi", lambda: Mpi("mpiexec", "openmpi", "Open MPI 5.0"))
    assert "use MPICH" in str(cannot_carry(Mpiexec()))
    monkeypatch.setattr(launcher, "find_mpi", lambda: Mpi("mpiexec", "mpich", "5.0"))
    assert cannot_carry(Mpiexec()) is None


def waiting(forward: float, backward: float) -> ModelSpec:
    return ModelSpec((Linear("fc1", 3, 2), Delay(forward, backward)))


@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_a_delay_waits_in_both_directions_and_changes_nothing(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, plain = waiting(0.25, 0.5), ModelSpec((Linear("fc1", 3, 2),))
    initial = plain.initial(1, "real")
    inputs, targets = np.ones((2, 3), np.float32), np.zeros((2, 2), np.float32)
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    if engine == "numpy":
        from ddpcheck_implementations.numpy_network import Network as Numpy

        def gradients(spec: ModelSpec) -> dict[str, np.ndarray]:
            found = {}
            Numpy(spec, initial).backward(inputs, targets, (), lambda name, array: found.update({name: array}))
            return found
    else:
        torch = pytest.importorskip("torch")
        from ddpcheck.pytorch.model import build_model

        def gradients(spec: ModelSpec) -> dict[str, np.ndarray]:
            module = build_model(spec, initial)
            module(torch.from_numpy(inputs)).square().sum().div(4).backward()
            return {name: value.grad.numpy() for name, value in module.named_parameters()}

    expected, got = gradients(plain), gradients(model)
    assert slept == [0.25, 0.5]
    for name, gradient in expected.items():
        np.testing.assert_array_equal(got[name], gradient)


def test_hideable_time_is_the_smaller_of_backward_and_communication() -> None:
    case = StepCase("x", 2, "emulated", "weak")
    forward = case.delays[0]
    launches = {"compute": [1.0], "compute_backward": [forward + 0.25], "comm_alone": [0.5], "optimizer": [0.0]}
    info = {**case.info(2), "per_launch": launches}
    assert step_parts([1.3], info)["of_possible"] == pytest.approx((0.5 - 0.3) / 0.25)
    launches["compute_backward"] = [forward + 2.0]
    assert step_parts([1.3], info)["of_possible"] == pytest.approx((0.5 - 0.3) / 0.5)
    assert step_parts([1.3], {**info, "delays": (0.0, 0.0)})["of_possible"] is None
