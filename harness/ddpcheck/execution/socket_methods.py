"""Replaces methods of Python's sockets temporarily, in all threads."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any


class SocketMethods:
    """Replacements of methods of socket.socket, all at once."""

    def __init__(self) -> None:
        self._originals: dict[str, Callable[..., Any]] = {}

    def replace(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        """Replace methods by these functions, unless they are replaced already."""
        if not self._originals:
            for name, function in functions.items():
                self._originals[name] = getattr(socket.socket, name)
                setattr(socket.socket, name, function)

    def restore(self) -> None:
        """Restore the original methods."""
        while self._originals:
            name, function = self._originals.popitem()
            setattr(socket.socket, name, function)

    def original(self, name: str) -> Callable[..., Any]:
        """The original method under a replacement, even while another thread restores it."""
        return self._originals.get(name) or getattr(socket.socket, name)
