"""A signal that arrives while the main thread holds an event's lock."""

from __future__ import annotations

import subprocess
import sys

import pytest

HANDLER = """
import signal, threading
{how}
event = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: {set_it})
with event._cond:  # as Event.wait does before and after it waits
    signal.raise_signal(signal.SIGTERM)
assert event.wait(10)
print("ended in order")
"""
SAFE = HANDLER.format(how="from validator.model.signals import set_from_handler", set_it="set_from_handler(event)")
UNSAFE = HANDLER.format(how="", set_it="event.set()")


def run(script: str, seconds: float) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=seconds, check=True)
    return done.stdout.strip()


def test_an_event_is_set_by_a_signal_handler() -> None:
    assert run(SAFE, 30) == "ended in order"


def test_a_handler_that_sets_the_event_itself_hangs() -> None:
    """The hazard exists: if this test fails, the helper is no longer needed."""
    with pytest.raises(subprocess.TimeoutExpired):
        run(UNSAFE, 2)
