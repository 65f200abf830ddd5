"""Interrupts a demo or campaign: a signal sets an event that every wait checks, and never interrupts the clean-up."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import Final, TypeVar

from validator.model.signals import ending, set_from_handler

_POLL_SECONDS: Final = 0.1
_Value = TypeVar("_Value")


class Stop:
    """A stop request, which the first signal sets. Any thread may wait for ``event``."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self._raises = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal was received."""
        if self.event.is_set():
            raise KeyboardInterrupt

    def pause(self, seconds: float = _POLL_SECONDS) -> None:
        """Wait; raise KeyboardInterrupt as soon as a signal is received."""
        self.event.wait(seconds)
        self.check()

    def result(self, future: Future[_Value], meanwhile: Callable[[], None] | None = None) -> _Value:
        """Return the result of ``future``; ``meanwhile`` is called at intervals. Raises KeyboardInterrupt on a
        signal."""
        while not future.done():
            self.pause()
            if meanwhile is not None:
                meanwhile()
        return future.result()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Context in which a signal raises KeyboardInterrupt immediately, for work that needs no clean-up."""
        self.check()
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        del number, frame
        set_from_handler(self.event)
        if self._raises:
            raise KeyboardInterrupt


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Let SIGINT, SIGTERM and SIGHUP set the stop; restore the earlier handlers at the end."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    previous = {number: signal.signal(number, stop.on_signal) for number in ending()}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
