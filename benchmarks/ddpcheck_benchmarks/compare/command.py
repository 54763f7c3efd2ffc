"""`ddpcheck compare all-reduce|steps|mpi`. Each subcommand imports only its own module."""

from __future__ import annotations

import importlib

import click

SUBCOMMANDS = {
    "all-reduce": "Compare the all-reduces of numpy_sockets with Gloo, MPI and a memory limit.",
    "steps": "Compare training steps of several adapters.",
    "mpi": "Compare an adapter over MPI with a bare Allreduce of mpi4py.",
}
_MODULES = {"all-reduce": "all_reduce"}


class _Subcommands(click.Group):
    """Lists its subcommands and their sentences without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUBCOMMANDS:
            return None
        module = importlib.import_module(f".{_MODULES.get(cmd_name, cmd_name)}", __package__)
        found = module.command
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(SUBCOMMANDS.items()))


@click.group("compare", cls=_Subcommands)
def command() -> None:
    """Compare implementations in turns in one run, and print ratios with their spread as markdown.

    All ranks run for the whole comparison. While one implementation is measured, all other ranks wait in a read.
    """
