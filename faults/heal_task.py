"""The healing of one fault: one call at a time, each in its own thread, so that a slow call does not delay others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from faults.errors import Unreachable
from faults.journal import Entry
from faults.kinds.base import Injection

_ALONE_SECONDS: Final = 1.0
"""A call that takes longer than this continues in the background while other faults are healed. Calls that return
sooner run one after the other."""
_CALL_SECONDS_MAX: Final = 120.0
"""The longest wait for a call. Each backend has a shorter timeout per target."""


class BackgroundCall:
    """A call in a daemon thread, so that a call that hangs does not block the process or its exit."""

    def __init__(self, call: Callable[[], bool | None]) -> None:
        self._call = call
        self._result: bool | None = None
        self._error: BaseException | None = None
        self._is_done = threading.Event()
        self.began = time.monotonic()
        try:
            threading.Thread(target=self._run, name="background-call", daemon=True).start()
        except RuntimeError:
            # The fault may be the reason why no thread can be started. A blocking call is better than none.
            self._run()

    @property
    def seconds(self) -> float:
        """Time since the call was made."""
        return time.monotonic() - self.began

    def is_done(self, within_seconds: float) -> bool:
        """Whether the call returns within the time."""
        # Thread.join is not used: if it is interrupted (Ctrl-C), Python 3.11 marks the thread as ended.
        return self._is_done.wait(within_seconds)

    def result(self) -> bool | None:
        """The result of a call that is done. Raises what the call raised."""
        if self._error is not None:
            raise self._error
        return self._result

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:  # noqa: BLE001 - raised by `result`
            self._error = error
        finally:
            self._is_done.set()


_pending_calls: Final[dict[str, BackgroundCall]] = {}
"""Fault id -> its unfinished call. A call stays here when the healing that made it has given up: a fault never has two
calls at a time, since they could undo each other or be refused."""


@dataclass(eq=False)
class HealTask:
    """A fault that is being healed."""

    entry: Entry
    injected: Injection
    is_heal_done: bool = False
    """Whether `Injection.heal` returned without an error. The probe still has to show that the fault is healed."""
    call: BackgroundCall | None = None
    """The unfinished call: `heal`, or the probe once `heal` is done. It may be the call of an earlier healing."""
    is_earlier_call: bool = False
    """Whether the unfinished call belongs to an earlier healing. Its result is ignored."""
    unreachable: Unreachable | None = None
    """Why the fault cannot be healed or probed yet."""
    unwritten: OSError | None = None
    """Why the journal does not state yet that the fault is healed."""

    @property
    def name(self) -> str:
        """The fault and its targets, for messages."""
        return f"{self.entry.fault.name} on {self.entry.fault.target_names}"

    def is_pending_since(self, instant: float) -> bool:
        """Whether there is an unfinished call that was made at ``instant`` or before."""
        return self.call is not None and self.call.began <= instant

    def may_return(self, instant: float) -> bool:
        """Whether a call that has been pending since ``instant`` may still return."""
        return self.call is not None and self.is_pending_since(instant) and self.call.seconds < _CALL_SECONDS_MAX

    def advance(self) -> bool | None:
        """Heal the fault or, if that is done, probe it. True: it is healed. None: the call has not returned yet.

        Raises what the injection raises.
        """
        wait_seconds = 0.0
        if self.call is None:
            self.call = _pending_calls.get(self.entry.fault.id)
            self.is_earlier_call = self.call is not None
            wait_seconds = _ALONE_SECONDS
        if self.call is None:
            self.call = BackgroundCall(self.injected.is_healed if self.is_heal_done else self.injected.heal)
            _pending_calls[self.entry.fault.id] = self.call
        if not self.call.is_done(wait_seconds):
            return None
        del _pending_calls[self.entry.fault.id]
        call, self.call = self.call, None
        if self.is_earlier_call:
            return self.advance()
        result = call.result()
        if not self.is_heal_done:
            self.is_heal_done = True
            return False
        self.unreachable = None
        return bool(result)
