"""Runs a command as over an ssh connection, of which this process is the client: `python connection.py COMMAND...`

As under sshd, the command has a session of its own, sockets as its stdin, stdout and stderr, and a parent that is not
below this process. It gets no signal when this process ends: only its sockets close.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress

_LOST = 255
"""The exit status of ssh when it fails itself, or the command was ended by a signal."""


def main(words: list[str]) -> int:
    lines, command_lines = socket.socketpair()
    errors, command_errors = socket.socketpair()
    told, tell = os.pipe()
    server = os.fork()
    if server == 0:
        lines.close()
        errors.close()
        os.close(told)
        _serve(words, command_lines, command_errors, tell)
    for file in (command_lines, command_errors):
        file.close()
    os.close(tell)
    os.waitpid(server, 0)
    try:
        _carry(lines, errors)
    except BrokenPipeError:  # nobody reads this process's output any more
        return _LOST
    status = os.read(told, 1)
    return status[0] if status else _LOST


def _serve(words: list[str], lines: socket.socket, errors: socket.socket, tell: int) -> None:
    """Run the command in a process that is not below the client."""
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for file in range(3):
        os.dup2(null, file)
    command = subprocess.Popen(words, stdin=lines.fileno(), stdout=lines.fileno(), stderr=errors.fileno())
    lines.close()
    errors.close()
    status = command.wait()
    os.write(tell, bytes([status if status >= 0 else _LOST]))
    os._exit(0)


def _carry(lines: socket.socket, errors: socket.socket) -> None:
    """Pass all bytes on, until the command and its children have closed stdout and stderr."""
    threading.Thread(target=_give, args=(lines,), daemon=True).start()
    other = threading.Thread(target=_pump, args=(errors.fileno(), 2), daemon=True)
    other.start()
    _pump(lines.fileno(), 1)
    other.join()


def _give(lines: socket.socket) -> None:
    with suppress(OSError):  # the command has closed its stdin, or ended
        _pump(0, lines.fileno())
        lines.shutdown(socket.SHUT_WR)


def _pump(source: int, sink: int) -> None:
    with suppress(ConnectionResetError):  # the command has ended with unread input
        while part := os.read(source, 1 << 16):
            while part:
                part = part[os.write(sink, part) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
