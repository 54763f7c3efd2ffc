"""Exit statuses of commands, by name. A process that ends in any other way has a status that is no verdict."""

from __future__ import annotations

import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum

import click

from ..launchers.ports import NoFreePort
from ..printable_text import cut, printable
from ..refused_resources import refused_resource
from ..storage.files import UnreadableFile, UnwritableFile
from .output import escape_unencodable_output, is_pipe, reader_is_gone, watch_output_reader
from .signals import StoppedBySignal, raise_on_signals

_LONGEST_ERROR = 20_000
"""The most characters of a usage error that are shown; a usage error may quote an adapter's error."""


class ExitStatus(IntEnum):
    """The statuses of all commands. `gate` adds 3; `launch` passes its program's status on."""

    WELL = 0
    """Everything that was asked for succeeded."""
    FAILED = 1
    """Something that was judged failed."""
    UNUSABLE = 2
    """The command could not be run as given, or an output file could not be written."""
    CRASHED = 70
    """ddpcheck itself failed, so there is no verdict on the adapter. EX_SOFTWARE of sysexits.h."""
    HUNG_UP = 129
    """SIGHUP ended the command. This and the following statuses are 128 + the signal, as in shells."""
    INTERRUPTED = 130
    """Ctrl-C (SIGINT) ended the command."""
    PIPE_CLOSED = 141
    """The reader of the output closed it (SIGPIPE)."""
    TERMINATED = 143
    """SIGTERM ended the command."""


def status_of(interrupt: BaseException) -> ExitStatus:
    """The exit status for the exception that ended a command; marks a signal as handled."""
    if not isinstance(interrupt, StoppedBySignal):
        return ExitStatus.INTERRUPTED
    interrupt.heeded = True
    return ExitStatus(128 + interrupt.number)


def run(command: Callable[[], object]) -> int:
    """Run a command and return its exit status. A usage error prints one sentence; any other error a traceback, with
    CRASHED.
    """
    try:
        escape_unencodable_output()
        with raise_on_signals() as end, watch_output_reader(lambda: end(signal.SIGPIPE)), _own_exit_only():
            result = command()
            sys.stdout.flush()
        return result if isinstance(result, int) else ExitStatus.WELL
    except click.ClickException as error:
        text = io.StringIO()
        error.show(text)
        _say(cut(printable(text.getvalue().rstrip()), _LONGEST_ERROR))
        return ExitStatus.UNUSABLE
    except (UnreadableFile, UnwritableFile) as error:
        _say(f"Error: {error}")
        return ExitStatus.UNUSABLE
    except (KeyboardInterrupt, click.Abort) as interrupt:
        status = status_of(interrupt.__cause__ or interrupt)
        if status == ExitStatus.PIPE_CLOSED:  # as with `| head`: no error
            _leave_output()
        else:
            _say(f"\nended by {signal.Signals(status - 128).name}")
        return status
    except OSError as error:
        if is_pipe() and reader_is_gone():
            _leave_output()
            return ExitStatus.PIPE_CLOSED
        if _output_is_full():
            _leave_output()
            return ExitStatus.UNUSABLE
        return _crashed(error)
    except Exception as error:
        return _crashed(error)


def _crashed(error: Exception) -> ExitStatus:
    if isinstance(error, NoFreePort) or refused_resource(error):
        _say(
            f"Error: {error}"
            if isinstance(error, NoFreePort)
            else f"Error: the system refuses {refused_resource(error)}: {error}"
        )
        return ExitStatus.UNUSABLE
    traceback.print_exc()
    _say("ddpcheck itself failed, not the adapter; please report the traceback above")
    return ExitStatus.CRASHED


def _output_is_full() -> bool:
    """Whether standard output cannot be written to, as on a full disk; prints the reason if so."""
    try:
        sys.stdout.write("\n")  # from Python 3.14 on, a flush that fails drops what it held
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        _say(f"standard output cannot be written to: {error}")
        return True
    return False


def _leave_output() -> None:
    """Replace standard output: Python flushes it once more at exit, and would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(text: str) -> None:
    try:
        click.echo(text, err=True)
    except (OSError, ValueError):
        return


@contextmanager
def _own_exit_only() -> Iterator[None]:
    """Stop os._exit() in this process, as in an adapter's module, from ending the command with a verdict's status."""
    process, leave = os.getpid(), os._exit

    def seen(status: int) -> None:
        if os.getpid() == process:
            stack = traceback.extract_stack()[-2]
            _say(f"{stack.filename}, line {stack.lineno} ended ddpcheck by os._exit({status}): nothing is judged")
            leave(ExitStatus.UNUSABLE)
        leave(status)

    os._exit = seen  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = leave
