"""A signal that arrives while the main thread holds an event's lock."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit import publish_snapshots
from validator.stream.sidecar import Sidecar

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


@pytest.fixture
def handlers() -> Iterator[None]:
    """Restores the handlers of signals afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_sidecar_ends_in_order_also_if_its_session_is_closed(number: int, tmp_path: Path) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    sidecar = Sidecar(publish_snapshots.config(tmp_path))
    sidecar._take_signals()
    assert callable(signal.getsignal(number)), "a signal without a handler would end this process"
    signal.raise_signal(number)
    assert sidecar._stop.wait(10)
    assert sidecar._stopping is not None
    # It would end this process after the longest time of a stop.
    sidecar._stopping.cancel()


@pytest.mark.usefixtures("handlers")
def test_the_sidecar_outlives_its_session_under_nohup(tmp_path: Path) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sidecar = Sidecar(publish_snapshots.config(tmp_path))
    assert signal.SIGHUP not in sidecar._take_signals()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
