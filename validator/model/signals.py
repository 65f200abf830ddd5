"""What a signal handler may do with an event.

Python runs handlers in the main thread between any two instructions, also while that thread holds an event's lock
inside `threading.Event.wait`. A handler that calls ``set`` then waits for a lock that only its own thread can release,
and SIGTERM would hang the process that it was to end.
"""

from __future__ import annotations

import threading


def set_from_handler(event: threading.Event) -> None:
    """Set ``event`` at once, but from a thread of its own."""
    threading.Thread(target=event.set, name="signal", daemon=True).start()
