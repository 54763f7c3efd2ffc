"""`ddpcheck init`: writes a commented starter adapter that can be checked unchanged."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from ..running.adapter_templates import KINDS
from ..storage.files import write_atomically
from .console import console
from .options import FILE, usage_errors

_WITHOUT_BASIC = "trainer"
"""The kind of an adapter to which no check of level basic applies."""


@click.command("init")
@click.argument("file", type=FILE)
@click.option(
    "--kind",
    type=click.Choice(list(KINDS)),
    default="torch",
    show_default=True,
    help="A torch wrapper, a NumPy communicator, or a loop that owns the whole training run.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def command(file: Path, kind: str, force: bool) -> None:
    """Write an adapter to FILE, with a comment at each place to fill in.

    The adapter works around a small example. Replace the example by your implementation, and check again.
    """
    with usage_errors():
        if file.suffix != ".py":
            raise ValueError(f"{file} should end in .py: an adapter is a Python module")
        if file.exists() and not force:
            raise ValueError(f"{file} exists; --force overwrites it")
        write_atomically(file, KINDS[kind](file.stem))
    out = console()
    named = shlex.quote(f"{file}:adapter")
    out.print(f"wrote {file}: {KINDS[kind].__doc__}", markup=False, soft_wrap=True)
    out.print("\nreplace the parts marked FILL IN, then:", markup=False)
    if kind != _WITHOUT_BASIC:
        out.print(
            f"  ddpcheck check {named} --level basic   # the most common laws; first verdicts within seconds",
            markup=False,
        )
    out.print(f"  ddpcheck suggest {named}               # promises that it could also make", markup=False)
    out.print(f"  ddpcheck check {named}                 # all that it promises", markup=False)
    sys.exit(0)
