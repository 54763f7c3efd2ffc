"""Signals at lines where an exception would break code that is not ddpcheck's."""

from __future__ import annotations

import signal
import subprocess
import sys
from types import FrameType
from typing import Any

import pytest

from ddpcheck.cli.signals import StoppedBySignal, raise_on_signals


@pytest.mark.parametrize("name", ["_internal_poll", "_wait"])
def test_a_signal_while_a_process_is_asked_for_its_status_leaves_no_lock(name: str) -> None:
    """Python calls signal handlers between two lines, as it does trace functions."""
    process: Any = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    asking = getattr(process, name).__code__

    def interrupt(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code is asking and process._waitpid_lock.locked():
            sys.settrace(None)
            handler = signal.getsignal(signal.SIGINT)
            assert callable(handler)
            handler(signal.SIGINT, frame)
        return interrupt

    def ask() -> None:
        sys.settrace(interrupt)
        while True:
            process.poll() if name == "_internal_poll" else process.wait(60)

    with pytest.raises(StoppedBySignal) as stopped, raise_on_signals():
        ask()
    stopped.value.heeded = True
    assert stopped.value.number == signal.SIGINT
    assert not process._waitpid_lock.locked()
    process.communicate(timeout=60)
