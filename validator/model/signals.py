"""Setting an event in a signal handler.

Python runs handlers in the main thread between any two instructions, even while that thread holds an event's lock
inside `threading.Event.wait`. If a handler then calls ``set``, it waits for a lock that only its thread can release,
and SIGTERM would hang the process that it should end.
"""

from __future__ import annotations

import signal
import threading


def ending() -> tuple[signal.Signals, ...]:
    """Return the signals that request an orderly end: SIGTERM, SIGINT, and SIGHUP unless it is ignored (nohup)."""
    chosen = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    return chosen[:2] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else chosen


def set_from_handler(event: threading.Event) -> None:
    """Set ``event`` at once, from a thread of its own."""
    threading.Thread(target=event.set, name="signal", daemon=True).start()
