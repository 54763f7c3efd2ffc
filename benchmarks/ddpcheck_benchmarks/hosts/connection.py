"""Runs a command as over an ssh connection, of which this process is the client: `python connection.py COMMAND...`

As under sshd, the command has a session of its own, sockets as its stdin, stdout and stderr, and a parent that is not
below this process. It gets no signal when this process ends: only its sockets close.
"""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import sys
from contextlib import nullcontext, suppress

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
    ready = selectors.PollSelector()  # epoll refuses files
    for source, sink in ((lines.fileno(), 1), (errors.fileno(), 2), (0, lines.fileno())):
        ready.register(source, selectors.EVENT_READ, sink)
    outputs = 2
    while outputs:
        for key, _ in ready.select():
            if part := _read(key.fd):
                with suppress(BrokenPipeError) if key.fd == 0 else nullcontext():  # the command has closed its stdin
                    _write(key.data, part)
                continue
            ready.unregister(key.fd)
            if key.fd:
                outputs -= 1
            else:
                with suppress(OSError):  # the command has ended
                    lines.shutdown(socket.SHUT_WR)


def _read(file: int) -> bytes:
    """The next bytes; none at the end, or if the command has ended with unread input."""
    try:
        return os.read(file, 1 << 16)
    except ConnectionResetError:
        return b""


def _write(file: int, part: bytes) -> None:
    while part:
        part = part[os.write(file, part) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
