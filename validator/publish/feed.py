"""Server-sent events: what was published last, to all who listen, and a sign of life in between.

Format: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

LISTENERS_MAX: Final = 64
"""Each holds a thread; whoever comes later is told to poll."""
BEAT_SECONDS: Final = 5.0
"""A listener hears something at least so often, so that it can tell silence from a dead sidecar."""
WHOLE_SECONDS: Final = 300.0
"""The whole history is sent again so often: the server thins old points, a page only adds new ones."""
RETRY_MS: Final = 1000
"""What a browser waits before it connects again, milliseconds."""

Data = dict[str, Any]


class Feed:
    """Holds the last update; safe to use from any thread."""

    def __init__(self, whole: Callable[[], Data], beat: Callable[[], Data]) -> None:
        """``whole`` makes the event `history`, ``beat`` the event `beat`."""
        self._whole = whole
        self._beat = beat
        self._changed = threading.Condition()
        self._update: Callable[[], Data] | None = None
        self._frame: bytes | None = None
        self._version = 0
        self._listeners = 0
        self._closed = False

    def publish(self, update: Callable[[], Data]) -> None:
        """Send what ``update`` makes to all listeners; it is not called where there are none."""
        with self._changed:
            self._update, self._frame = update, None
            self._version += 1
            self._changed.notify_all()

    def close(self) -> None:
        """End all streams with the event `end`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def listen(self) -> Iterator[bytes] | None:
        """The events from now on, the last update first; None where too many listen already."""
        with self._changed:
            return None if self._listeners >= LISTENERS_MAX else self._events()

    def _events(self) -> Iterator[bytes]:
        seen = -1
        whole_at = float("-inf")
        # Counted here and not in `listen`: a stream that nobody reads (HEAD) is never begun and never ended.
        with self._changed:
            self._listeners += 1
        try:
            yield f"retry: {RETRY_MS}\n\n".encode()
            while not self._closed:
                if time.monotonic() - whole_at >= WHOLE_SECONDS:
                    whole_at = time.monotonic()
                    yield event("history", self._whole())
                seen, frame = self._next(seen)
                if not self._closed:
                    yield frame if frame is not None else event("beat", self._beat())
            # A sidecar that was told to stop must not look like one that died.
            yield event("end", {})
        finally:
            with self._changed:
                self._listeners -= 1

    def _next(self, seen: int) -> tuple[int, bytes | None]:
        """The version and frame after ``seen``, or no frame where none came within a beat."""
        with self._changed:
            news = self._changed.wait_for(
                lambda: self._closed or (self._update is not None and self._version != seen), BEAT_SECONDS
            )
            if not news or self._closed or self._update is None:
                return seen, None
            if self._frame is None:
                self._frame = event("update", self._update())
            return self._version, self._frame


def event(name: str, data: Data) -> bytes:
    """One event; JSON has no line ends of its own, so it is one line of data."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return f"event: {name}\ndata: {text}\n\n".encode()
