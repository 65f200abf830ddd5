"""Server-sent events: what was published last, to all who listen, and a sign of life in between.

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
"""Each holds a connection and what it was not sent yet; whoever comes later is told to poll."""
BEAT_SECONDS: Final = 5.0
"""A listener hears something at least so often, so that it can tell silence from a dead sidecar."""
WHOLE_SECONDS: Final = 300.0
"""The whole history is sent again so often: the server thins old points, a page only adds new ones."""
RETRY_MS: Final = 1000
"""What a browser waits before it connects again, milliseconds."""

Data = dict[str, Any]


class Feed:
    """Holds the last update; ``publish`` and ``close`` may be called from any thread."""

    def __init__(self, whole: Callable[[], Data], beat: Callable[[], Data]) -> None:
        """``whole`` makes the event `history`, ``beat`` the event `beat`."""
        self._whole = whole
        self._beat = beat
        self._making = threading.Lock()
        self._update: Callable[[], Data] | None = None
        self._frame: bytes | None = None
        self._version = 0
        self._listening = threading.Lock()
        self._listeners: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._closed = threading.Event()

    def publish(self, update: Callable[[], Data]) -> None:
        """Send what ``update`` makes to all listeners; it is not called where there are none."""
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
        """The events from now on, the last update first; None where too many listen already."""
        return None if len(self._listeners) >= LISTENERS_MAX else self._events()

    async def _events(self) -> AsyncGenerator[bytes]:
        seen, news = 0, asyncio.Event()
        whole_at = float("-inf")
        # Counted here and not in `listen`: a stream that is not read (HEAD) is never begun and never ended.
        with self._listening:
            self._listeners[news] = asyncio.get_running_loop()
        try:
            yield f"retry: {RETRY_MS}\n\n".encode()
            while not self._closed.is_set():
                if time.monotonic() - whole_at >= WHOLE_SECONDS:
                    whole_at = time.monotonic()
                    yield await asyncio.to_thread(lambda: event("history", self._whole()))
                news.clear()
                if self._version == seen and not self._closed.is_set():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(BEAT_SECONDS):
                            await news.wait()
                if self._closed.is_set():
                    break
                if self._version == seen:
                    yield event("beat", self._beat())
                else:
                    seen, frame = await asyncio.to_thread(self._made)
                    yield frame
            # A sidecar that was told to stop must not look like one that died.
            yield event("end", {})
        finally:
            with self._listening:
                del self._listeners[news]

    def _made(self) -> tuple[int, bytes]:
        """The newest version and its frame, which is made once for all."""
        with self._making:
            assert self._update is not None
            if self._frame is None:
                self._frame = event("update", self._update())
            return self._version, self._frame


def event(name: str, data: Data) -> bytes:
    """One event; JSON has no line ends of its own, so it is one line of data."""
    return f"event: {name}\ndata: {plain_json(data)}\n\n".encode()
