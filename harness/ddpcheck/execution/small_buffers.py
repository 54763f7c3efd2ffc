"""Shrinks the buffers of this process's stream sockets and pipes, so that few unread bytes fill them.

A send that relies on the kernel's buffer then blocks. Sockets and pipes are found through /proc, including those of
compiled libraries, without asking the implementation.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import socket
import stat
import termios
from contextlib import suppress

from ..launchers.process_handles import open_files

SMALL = 1 << 17
"""Buffer size in bytes. Below a segment of the loopback device (64 KiB) every transfer would wait for timers."""
_PIPE = 4096
_BUFFERS = (socket.SO_SNDBUF, socket.SO_RCVBUF)
_LIBRARY = ctypes.CDLL(None, use_errno=True)
_sizes: dict[tuple[int, int], dict[int, int]] = {}
"""The changed files by number and inode, with the earlier size of each buffer by option."""


def shrink_buffers() -> int:
    """Shrink the buffers of all open streams. Returns the number of changed streams."""
    for file, _ in open_files():
        with suppress(OSError):
            about = os.fstat(file)
            sizes = _shrunk(file, about.st_mode)
            if sizes:
                _sizes.setdefault((file, about.st_ino), sizes)
    return len(_sizes)


def restore_buffers() -> None:
    """Restore the sizes of these buffers."""
    while _sizes:
        (file, inode), sizes = _sizes.popitem()
        with suppress(OSError):
            about = os.fstat(file)
            if about.st_ino != inode:
                continue  # closed meanwhile
            for option, size in sizes.items():
                if stat.S_ISFIFO(about.st_mode):
                    fcntl.fcntl(file, option, size)
                else:
                    _set(file, option, size)


def waiting_bytes() -> tuple[int, int]:
    """Bytes that this process has sent and no peer has read, and bytes that it has received and not read, over all
    sockets.
    """
    unsent = unread = 0
    for file, _ in open_files():
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(file).st_mode) and _get(file, socket.SO_TYPE) == socket.SOCK_STREAM:
                unsent += _count(file, termios.TIOCOUTQ)
                unread += _count(file, termios.FIONREAD)
    return unsent, unread


def _shrunk(file: int, mode: int) -> dict[int, int]:
    """The previous sizes of the buffers that became smaller."""
    if stat.S_ISFIFO(mode):
        before = fcntl.fcntl(file, fcntl.F_GETPIPE_SZ)
        fcntl.fcntl(file, fcntl.F_SETPIPE_SZ, _PIPE)
        return {fcntl.F_SETPIPE_SZ: before}
    if not stat.S_ISSOCK(mode) or _get(file, socket.SO_TYPE) != socket.SOCK_STREAM:
        return {}
    sizes = {option: _get(file, option) // 2 for option in _BUFFERS}  # the kernel doubles the requested size
    larger = {option: size for option, size in sizes.items() if size > SMALL}
    for option in larger:
        _set(file, option, SMALL)
    return larger


def _get(file: int, option: int) -> int:
    """The size, by the C library: a Python socket might change the blocking mode."""
    value, size = ctypes.c_int(), ctypes.c_uint32(4)
    if _LIBRARY.getsockopt(file, socket.SOL_SOCKET, option, ctypes.byref(value), ctypes.byref(size)):
        raise OSError(ctypes.get_errno(), "getsockopt")
    return value.value


def _set(file: int, option: int, size: int) -> None:
    if _LIBRARY.setsockopt(file, socket.SOL_SOCKET, option, ctypes.byref(ctypes.c_int(size)), 4):
        raise OSError(ctypes.get_errno(), "setsockopt")


def _count(file: int, request: int) -> int:
    number = array.array("i", [0])
    fcntl.ioctl(file, request, number)
    return number[0]
