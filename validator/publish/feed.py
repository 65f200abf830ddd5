"""Server-sent events: all listeners get the last update, and the event `beat` while there is no new one.

Format: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

from validator.model.terminal import plain_json

LISTENERS_MAX: Final = 64
"""Maximum number of listeners. Each holds a connection and its unsent data. The answer to a further client asks it to
poll."""
HEARTBEAT_SECONDS: Final = 5.0
"""Longest time between two events. A listener that gets none for longer knows that the sidecar does not answer."""
FULL_HISTORY_SECONDS: Final = 300.0
"""Interval at which the whole history is sent again: the server thins old points, while a page only adds new ones."""
RETRY_MS: Final = 1000
"""Time that a browser waits before it connects again, in milliseconds."""

Data = dict[str, Any]


class Feed:
    """Holds the last update; ``publish`` and ``close`` may be called from any thread."""

    def __init__(self, history: Callable[[], Data], heartbeat: Callable[[], Data]) -> None:
        """``history`` returns the data of the event `history`, ``heartbeat`` that of the event `beat`."""
        self._history = history
        self._heartbeat = heartbeat
        self._making = threading.Lock()
        self._update: Callable[[], Data] | None = None
        self._frame: bytes | None = None
        self._version = 0
        self._listening = threading.Lock()
        self._listeners: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._closed = threading.Event()

    def publish(self, update: Callable[[], Data]) -> None:
        """Send the data that ``update`` returns to all listeners. Without listeners, ``update`` is not called."""
        with self._making:
            self._update, self._frame = update, None
            self._version += 1
        self._wake()

    def close(self) -> None:
        """End all streams with the event `end`."""
        self._closed.set()
        self._wake()

    def _wake(self) -> None:
        with self._listening:
            for news, loop in self._listeners.items():
                loop.call_soon_threadsafe(news.set)

    def listen(self) -> AsyncGenerator[bytes] | None:
        """Return the events from now on, starting with the last update; None if there are too many listeners."""
        return None if len(self._listeners) >= LISTENERS_MAX else self._events()

    async def _events(self) -> AsyncGenerator[bytes]:
        seen, news = 0, asyncio.Event()
        history_sent_at = float("-inf")
        # A listener is counted here and not in `listen`: if the stream is not read (HEAD), this generator never starts,
        # and its `finally` never runs.
        with self._listening:
            self._listeners[news] = asyncio.get_running_loop()
        try:
            yield f"retry: {RETRY_MS}\n\n".encode()
            while not self._closed.is_set():
                if time.monotonic() - history_sent_at >= FULL_HISTORY_SECONDS:
                    history_sent_at = time.monotonic()
                    yield await asyncio.to_thread(lambda: event("history", self._history()))
                news.clear()
                if self._version == seen and not self._closed.is_set():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(HEARTBEAT_SECONDS):
                            await news.wait()
                if self._closed.is_set():
                    break
                if self._version == seen:
                    yield event("beat", self._heartbeat())
                else:
                    seen, frame = await asyncio.to_thread(self._made)
                    yield frame
            # A sidecar that was stopped must not look like one that died.
            yield event("end", {})
        finally:
            with self._listening:
                del self._listeners[news]

    def _made(self) -> tuple[int, bytes]:
        """Return the newest version and its frame, which is made once for all listeners."""
        with self._making:
            assert self._update is not None
            if self._frame is None:
                self._frame = event("update", self._update())
            return self._version, self._frame


def event(name: str, data: Data) -> bytes:
    """Return one event. The JSON has no line ends, so it is one line of data."""
    return f"event: {name}\ndata: {plain_json(data)}\n\n".encode()
