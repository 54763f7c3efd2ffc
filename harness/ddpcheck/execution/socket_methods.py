"""Methods of Python's sockets that are replaced for a while, in all threads."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any


class SocketMethods:
    """Replacements of methods of socket.socket, all at once."""

    def __init__(self) -> None:
        self._originals: dict[str, Callable[..., Any]] = {}

    def replace(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        """Put these functions in place of the methods of their names, unless they are in place already."""
        if not self._originals:
            for name, function in functions.items():
                self._originals[name] = getattr(socket.socket, name)
                setattr(socket.socket, name, function)

    def restore(self) -> None:
        """Put the original methods back."""
        while self._originals:
            name, function = self._originals.popitem()
            setattr(socket.socket, name, function)

    def original(self, name: str) -> Callable[..., Any]:
        """The method under a replacement, which another thread may be restoring at this moment."""
        return self._originals.get(name) or getattr(socket.socket, name)
