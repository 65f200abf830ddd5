"""Signals that end the command: before it has begun, at its start, and while it waits for an event.

Python runs handlers in the main thread between any two instructions, even while that thread holds an event's lock
inside `threading.Event.wait`. If a handler then calls ``set``, it waits for a lock that only its thread can release,
and SIGTERM would hang the process that it should end.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

Handlers = Mapping[signal.Signals, Any]
"""Signal -> its handler."""


class Ended(KeyboardInterrupt):
    """A signal ended the command, as Ctrl-C does. The message is a clause with its name."""


def ending() -> tuple[signal.Signals, ...]:
    """Return the signals that request an orderly end: SIGTERM, SIGINT, and SIGHUP unless it is ignored (nohup)."""
    chosen = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    return chosen[:2] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else chosen


def end_at_once(status: int) -> Handlers:
    """From now on, SIGTERM and SIGHUP end the process with ``status`` and a sentence. Returns the previous handlers.

    Use it before anything is begun: no cleanup runs. An exception would be lost in the imports of some libraries.
    """

    def end(number: int, frame: FrameType | None) -> NoReturn:
        del frame
        with suppress(OSError):
            os.write(2, f"streamproof: {signal.Signals(number).name} ended the command before it had begun.\n".encode())
        os._exit(status)

    return _handle(end)


def raise_ended() -> Handlers:
    """From now on, SIGTERM and SIGHUP raise `Ended` in the main thread. Returns the previous handlers."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        del frame
        raise Ended(f"{signal.Signals(number).name} ended the command")

    return _handle(end)


def handled_by(handlers: Handlers) -> None:
    """Set these handlers. A handler that Python did not set (None) is left out."""
    for number, handler in handlers.items():
        if handler is not None:
            signal.signal(number, handler)


def _handle(end: Any) -> Handlers:
    """Set a handler of SIGTERM and SIGHUP. Only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, end) for number in ending() if number is not signal.SIGINT}


def set_from_handler(event: threading.Event) -> None:
    """Set ``event`` at once, from a thread of its own."""
    threading.Thread(target=event.set, name="signal", daemon=True).start()
