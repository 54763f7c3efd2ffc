"""Standard output: replaces characters that its encoding lacks, and notices when its reader closes it."""

from __future__ import annotations

import codecs
import os
import select
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper

_ASCII = {
    "✓": "+",
    "✗": "x",
    "⧗": "h",
    "…": "...",
    "·": "-",
    "×": "x",
    "—": "-",
    "–": "-",
    "•": "*",
    "→": "->",
    "≤": "<=",
}
_ERRORS = "ddpcheck.ascii"
_LOOK_EVERY_MS = 500


def escape_unencodable_output() -> None:
    """Replace characters that standard output or error cannot encode by ASCII escapes, instead of raising."""
    codecs.register_error(_ERRORS, _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_ASCII.get(character, "?") for character in error.object[error.start : error.end]), error.end


def reader_is_gone(wait_ms: int = 0) -> bool:
    """Whether the reader of standard output has closed it. Waits up to wait_ms."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # POLLERR is always reported
    return bool(poll.poll(wait_ms))


def is_pipe() -> bool:
    """Whether standard output is a pipe. False if it was replaced by an object without a file, as in tests."""
    try:
        return stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):
        return False


@contextmanager
def watch_output_reader(gone: Callable[[], None]) -> Iterator[None]:
    """Call `gone` once, in another thread, when the reader of standard output has closed it."""
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            if reader_is_gone(_LOOK_EVERY_MS) and not done.is_set():
                gone()
                return

    if is_pipe():
        threading.Thread(target=watch, name="reader of standard output", daemon=True).start()
    try:
        yield
    finally:
        done.set()
