"""`python -m ddpcheck_benchmarks.hosts N COMMAND`: run a command on the first of N emulated hosts."""

from __future__ import annotations

import subprocess
import sys

import click

from ..projection.quantities import parse_rate
from .machines import machines
from .network import MOST_HOSTS, network, unavailable


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--link", default="10Gbit/s", show_default=True, help="Rate of each host's link, in both directions.")
@click.argument("hosts", type=click.IntRange(1, MOST_HOSTS))
@click.argument("words", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(link: str, hosts: int, words: tuple[str, ...]) -> None:
    """Run COMMAND on host0 of HOSTS emulated hosts: host0, host1 and so on, which reach each other by name, and by ssh.

    Needs Linux and root. Programs, files and cores are this machine's.

    \b
    python -m ddpcheck_benchmarks.hosts 2 bash
    python -m ddpcheck_benchmarks.hosts 4 --link 1Gbit/s -- mpirun -hosts host0,host1,host2,host3 -n 4 hostname
    """  # noqa: D301  # click wants the character, not the two that stand for it
    try:
        rate = parse_rate(link)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--link") from error
    reason = unavailable()
    if reason is not None:
        raise click.ClickException(reason)
    with network(hosts, rate) as joined, machines(joined) as made:
        sys.exit(subprocess.run(made[0].command(words), check=False).returncode)


if __name__ == "__main__":
    command(prog_name="python -m ddpcheck_benchmarks.hosts")
