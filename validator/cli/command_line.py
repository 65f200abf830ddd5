"""One run of the command `streamproof`. Errors are printed to stderr as a sentence and give an exit status."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress

from validator.cli.commands import COMMANDS
from validator.cli.exits import INTERRUPTED, PASS, UNKNOWN, sentence_of, status_of
from validator.cli.log_lines import lines_of
from validator.cli.parser import parse
from validator.model.signals import Ended, Handlers, handled_by
from validator.publish.stderr import release_stderr


def run(argv: Sequence[str] | None, handlers: Handlers) -> int:
    """Run the command in ``argv`` (None: the process's arguments). Returns its exit status; never raises.

    ``handlers``: the signal handlers of the caller, which are set again unless the command handles signals itself.
    """
    _open_closed_streams()
    try:
        return _run(argv, handlers)
    finally:
        release_stderr()


def _open_closed_streams() -> None:
    """If stdout or stderr was closed (``>&-``), discard what is written to it. Otherwise the next file that is opened
    would get its descriptor, and `sys.stdout` or `sys.stderr` would be None."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_WRONLY)
            if null != number and not _is_open(number):
                os.dup2(null, number)
                os.close(null)
                null = number
            # For the JVM and other processes.
            os.set_inheritable(null, null == number)
            setattr(sys, name, os.fdopen(null, "w", encoding="utf-8", closefd=False))


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _run(argv: Sequence[str] | None, handlers: Handlers) -> int:
    try:
        given = parse(argv)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else PASS
    except KeyboardInterrupt:
        return INTERRUPTED
    debug = bool(getattr(given, "debug", False))
    given.lines = lines_of(getattr(given, "log_format", None))
    if given.command != "validate":
        handled_by(handlers)
    try:
        status = COMMANDS[given.command](given)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt as ended:
        if debug:
            _print_trace()
        if isinstance(ended, Ended):
            given.lines.error(f"{ended}; run the command again to continue.")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has closed the pipe. Without this, Python reports the error again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNKNOWN
    except Exception as error:  # noqa: BLE001 - for every error the user gets a sentence and an exit status
        if debug:
            _print_trace()
        for line in sentence_of(error).splitlines():
            given.lines.error(line)
        return status_of(error)


def _print_trace() -> None:
    with suppress(OSError):
        traceback.print_exc()
