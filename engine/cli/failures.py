"""How a command ends when something is in the way: one message, one exit code, no traceback."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from sessiondb.cli.output import say
from sessiondb.errors import (
    BadQueryError,
    DamagedDatabaseError,
    DatabaseBusyError,
    NotADatabaseError,
    SessionDBError,
    SessionDBWarning,
)

DONE: Final = 0
NOT_DONE: Final = 1
ASKED_WRONGLY: Final = 2
BUSY: Final = 3
DAMAGE: Final = 4
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
"""The last two are what a shell reports for a program that the signal ended."""

CODES: Final[dict[type[SessionDBError], int]] = {
    BadQueryError: ASKED_WRONGLY,
    DatabaseBusyError: BUSY,
    NotADatabaseError: DAMAGE,
    DamagedDatabaseError: DAMAGE,
}
"""Every other error of ours is something that could not be done."""


@contextmanager
def exit_codes(ctx: click.Context) -> Iterator[None]:
    """End the program in the right way when the block raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", SessionDBWarning)
            warnings.showwarning = _show_warning
            yield
    except BrokenPipeError:
        _forget_stdout()
        ctx.exit(PIPE_CLOSED)
    except KeyboardInterrupt:
        say("interrupted; what was committed before is kept: run it again to finish")
        ctx.exit(INTERRUPTED)
    except SessionDBError as error:
        say(f"error: {error}")
        ctx.exit(next((code for kind, code in CODES.items() if isinstance(error, kind)), NOT_DONE))
    except OSError as error:
        say(f"error: {error.filename or 'output'}: {error.strerror or error}")
        ctx.exit(NOT_DONE)


def _forget_stdout() -> None:
    # What is still buffered would raise again when Python flushes at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    say(f"warning: {message}")
