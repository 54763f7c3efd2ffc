"""`ddpcheck launch`: prints the commands that start a program on several hosts, or starts the program on this host."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from ..contract.adapter import Adapter
from ..contract.rank_context import DEFAULT_MASTER_PORT
from ..launchers.launcher import Launcher, ParentProcessLauncher
from ..running.adapter_lookup import how_to_install, is_adapter_file, missing_modules, resolve
from ..running.guarded_import import IMPORT_SECONDS
from ..running.launcher_lookup import launcher_named
from ..training.program import program as training
from .launched_ranks import run_ranks
from .number_options import RANKS, WholeNumber
from .options import usage_errors

_LAUNCHER_OF = {"torchrun": "torchrun", "mpirun": "mpiexec", "environment": "processes"}
_ENGINE_OF = {launcher: engine for engine, launcher in _LAUNCHER_OF.items()}


@dataclass(frozen=True)
class Cluster:
    """`hosts` with `each` ranks per host. Rank 0 is on the first host and listens at its address and `port`."""

    hosts: tuple[str, ...]
    each: int
    port: int

    @property
    def ranks(self) -> int:
        return len(self.hosts) * self.each


@click.command("launch", context_settings={"ignore_unknown_options": True})
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("-n", "--nproc-per-node", type=RANKS, default=1, show_default=True, help="Ranks per host.")
@click.option("--nnodes", type=RANKS, help="Number of hosts. Default: the number of --hosts, or 1.")
@click.option("--master-addr", help="Address of rank 0 that all hosts can reach. Default: the first host.")
@click.option("--master-port", type=WholeNumber(1, 65535), help=f"Rank 0's port.  [default: {DEFAULT_MASTER_PORT}]")
@click.option("--hosts", help="Host names, separated by commas.")
@click.option(
    "--engine",
    type=click.Choice(list(_LAUNCHER_OF)),
    help="How ranks are started. Default: the launcher that fits PROGRAM.",
)
@click.option("--run", is_flag=True, help="Start the ranks here, on this host.")
def command(
    program: str,
    arguments: tuple[str, ...],
    nproc_per_node: int,
    nnodes: int | None,
    master_addr: str | None,
    master_port: int | None,
    hosts: str | None,
    engine: str | None,
    run: bool,
) -> None:
    """Print the command that starts PROGRAM on every host, or start PROGRAM here with --run.

    PROGRAM is an adapter, to train with, or a Python script of your own (path/to/script.py). Its own options follow.

    \b
    ddpcheck launch torch_ddp --nnodes 2 -n 4 --master-addr node0 --epochs 3
    ddpcheck launch numpy_mpi --hosts node0,node1 -n 4
    ddpcheck launch numpy_sockets -n 4 --run --epochs 3
    ddpcheck launch my_training.py -n 2 --engine torchrun --run
    """  # noqa: D301  # click wants the character, not the two that stand for it
    adapter = None if program.endswith(".py") else _adapter(program)
    if adapter is None:
        _is_script(program, run=run)
    else:
        training.make_context(
            f"ddpcheck launch {program}", [program, *arguments]
        )  # refuses options that it does not have
    chosen = engine or _fitting(adapter)
    cluster = Cluster(_hosts(nnodes, hosts, master_addr), nproc_per_node, master_port or DEFAULT_MASTER_PORT)
    if run:
        if len(cluster.hosts) > 1:
            raise click.UsageError(
                "--run starts ranks on this host only; without --run the command for each host is printed"
            )
        _complete(adapter)
        own = adapter.launcher if adapter is not None and isinstance(adapter.launcher, ParentProcessLauncher) else None
        launcher = own if own is not None and engine is None else launcher_named(_LAUNCHER_OF[chosen])
        sys.exit(_run(launcher, [*_program(program, adapter), *arguments], cluster.each, master_addr, master_port))
    if cluster.hosts[0] == "localhost" and len(cluster.hosts) > 1:
        raise click.UsageError(
            "several hosts must reach rank 0: name its host with --master-addr, or all hosts with --hosts"
        )
    rest = shlex.join([*_program(program, adapter), *arguments])
    for line in _LINES[chosen](cluster, rest, _reads_master(adapter)):
        click.echo(line)


def _adapter(program: str) -> Adapter:
    with usage_errors():
        return resolve(program, IMPORT_SECONDS)[0]


def _is_script(program: str, *, run: bool) -> None:
    """Refuse to run a script that does not exist here. A command for other hosts needs no file here: a note says so."""
    if not Path(program).is_file():
        if run:
            raise click.UsageError(f"there is no script {program}")
        click.echo(f"note: there is no script {program} on this host", err=True)
    elif is_adapter_file(Path(program)):
        click.echo(
            f"note: {program} runs as a script, though it defines an adapter; to train with it: {program}:adapter",
            err=True,
        )


def _complete(adapter: Adapter | None) -> None:
    """Refuse to run an adapter whose requirements are missing here. Commands for other hosts need no requirements
    here.
    """
    missing = missing_modules(adapter) if adapter is not None else []
    if adapter is not None and missing:
        raise click.UsageError(f"{adapter.name} needs {', '.join(missing)}; {how_to_install(missing)}")


def _fitting(adapter: Adapter | None) -> str:
    if adapter is not None and adapter.launcher.name == "processes" and "torch" in adapter.requires:
        return "torchrun"
    return _ENGINE_OF.get(adapter.launcher.name, "environment") if adapter is not None else "environment"


def _hosts(nnodes: int | None, hosts: str | None, master_addr: str | None) -> tuple[str, ...]:
    if hosts is None:
        first = master_addr or "localhost"
        return (first, *(f"host{number}" for number in range(1, nnodes or 1)))
    names = tuple(name.strip() for name in hosts.split(",") if name.strip())
    if not names or nnodes not in (None, len(names)):
        raise click.UsageError(f"--hosts names {len(names)} hosts, but --nnodes is {nnodes}; give only one of the two")
    return (master_addr or names[0], *names[1:])


def _program(program: str, adapter: Adapter | None) -> list[str]:
    """The arguments of `python`."""
    return [program] if adapter is None else ["-m", "ddpcheck.training", program]


def _reads_master(adapter: Adapter | None) -> bool:
    """Whether the program uses MASTER_ADDR and MASTER_PORT: an MPI program does not, as MPI has a rendezvous of its
    own.
    """
    return adapter is None or adapter.launcher.name != "mpiexec"


def _run(launcher: Launcher, program: list[str], ranks: int, address: str | None, port: int | None) -> int:
    variables = {}
    if address is not None or port is not None:
        if launcher.name == "torchrun":
            raise click.UsageError(
                "on one host torchrun chooses address and port itself; omit them, or use another --engine"
            )
        variables = {"MASTER_ADDR": address or "127.0.0.1", "MASTER_PORT": str(port or DEFAULT_MASTER_PORT)}
    return run_ranks(launcher, [sys.executable, *program], ranks, variables)


# ----------------------------------------------------------------------------------------------------------------- lines


def _torchrun(cluster: Cluster, program: str, reads_master: bool) -> Iterator[str]:
    del reads_master  # torchrun always needs address and port
    for node, host in enumerate(cluster.hosts):
        yield from _heading(cluster, node, host)
        yield (
            f"torchrun --nnodes={len(cluster.hosts)} --node-rank={node} --nproc-per-node={cluster.each} "
            f"--master-addr={cluster.hosts[0]} --master-port={cluster.port} {program}"
        )


def _mpirun(cluster: Cluster, program: str, reads_master: bool) -> Iterator[str]:
    places = ",".join(f"{host}:{cluster.each}" for host in cluster.hosts)
    master = {"MASTER_ADDR": cluster.hosts[0], "MASTER_PORT": str(cluster.port)} if reads_master else {}
    mpich = "".join(f"-genv {name} {value} " for name, value in master.items())
    openmpi = "".join(f"-x {name}={value} " for name, value in master.items())
    yield f"# once, on {cluster.hosts[0]}, with MPICH or Intel MPI"
    yield f"mpirun -n {cluster.ranks} -ppn {cluster.each} -hosts {places} {mpich}python {program}"
    yield "# or with Open MPI"
    yield f"mpirun -np {cluster.ranks} --host {places} {openmpi}python {program}"


def _environment(cluster: Cluster, program: str, reads_master: bool) -> Iterator[str]:
    del reads_master
    for node, host in enumerate(cluster.hosts):
        yield from _heading(cluster, node, host, f", {cluster.each} terminals" if cluster.each > 1 else "")
        for local in range(cluster.each):
            yield (
                f"RANK={node * cluster.each + local} WORLD_SIZE={cluster.ranks} LOCAL_RANK={local} "
                f"LOCAL_WORLD_SIZE={cluster.each} MASTER_ADDR={cluster.hosts[0]} MASTER_PORT={cluster.port} "
                f"python {program}"
            )


def _heading(cluster: Cluster, node: int, host: str, more: str = "") -> Iterator[str]:
    if len(cluster.hosts) > 1 or more:
        yield f"# on {host} (node {node}){more}"


_LINES = {"torchrun": _torchrun, "mpirun": _mpirun, "environment": _environment}
