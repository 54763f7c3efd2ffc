"""The launcher that --launcher, --attach or --start asks for."""

from __future__ import annotations

import socket

from rich.console import Console

from ..launchers.launcher import Launcher
from ..running.launcher_lookup import launcher_named


def chosen_launcher(
    out: Console,
    name: str | None,
    attach: str | None,
    start: str | None,
    listen: str | None,
    sizes: tuple[int, ...],
    adapters: tuple[str, ...],
) -> Launcher | None:
    """None for each adapter's own. ValueError for options that exclude each other, or cannot start ranks."""
    given = [option for option, value in (("--launcher", name), ("--attach", attach), ("--start", start)) if value]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} exclude each other: each of them sets how the ranks are started")
    if listen and not start:
        raise ValueError("--listen is only for --start, whose ranks connect to this address")
    if start is not None:
        return _by_line(start, listen)
    if attach is not None:
        return _attached(out, attach, sizes, adapters)
    return launcher_named(name) if name else None


def _by_line(line: str, host: str | None) -> Launcher:
    """Ranks are started by a line of the user's."""
    from ..launchers.command_launcher import CommandLauncher

    made = CommandLauncher(line, host or socket.gethostname())
    reason = made.unavailable()
    if reason is not None:
        raise ValueError(reason)
    return made


def _attached(out: Console, address: str, sizes: tuple[int, ...], adapters: tuple[str, ...]) -> Launcher:
    """Ranks are started by the user, and connect to this address."""
    if len(sizes) != 1 or len(adapters) != 1:
        raise ValueError("--attach needs one adapter and one --world-size, the number of ranks that you start")
    host, separator, port = address.rpartition(":")
    if not separator or not host or not port.isdigit():
        raise ValueError(
            f"--attach {address!r} should be HOST:PORT, with an address of this host that the ranks can reach"
        )
    from ..launchers.attached import Attached

    return Attached(host, int(port), announce=lambda text: out.print(text, markup=False, soft_wrap=True))
