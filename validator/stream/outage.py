"""Outages of the brokers: time in which nothing can be read does not prove a loss (SEMANTICS 3.15)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from validator.publish.times import rfc3339
from validator.state.folder import open_new
from validator.stream.brokers import BrokersRefuse, BrokersUnreachable
from validator.stream.failures import NO_ANSWER, causes_of, text_of

FILE: Final = "brokers-unanswered"
_ASK_AFTER_SECONDS: Final = 10.0
"""Time without an answer after which the watch makes a request of its own: while Spark plans or reads a batch, the
driver makes no request."""
_SAY_AFTER_SECONDS: Final = 10.0
"""If the brokers have not answered for this time since the first request of the watch, they count as silent."""
_SECOND_LETTERS: Final = 19
"""Length of an instant in RFC 3339 up to the second."""


class AnsweringBrokers(Protocol):
    """The attributes of `Brokers` that the watch uses."""

    servers: str
    answered_at: float


class BrokersWatch:
    """Reports each outage of the brokers once, with the instant of their last answer, and reports once that they answer
    again.

    ``ask`` makes a request to ``brokers`` in a background thread. ``clock``: monotonic, in seconds. ``now_us``:
    microseconds since the epoch.
    """

    def __init__(
        self,
        brokers: AnsweringBrokers,
        ask: Callable[[], object],
        say: Callable[[str], None],
        now_us: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._brokers = brokers
        self._ask = ask
        self._say = say
        self._now_us = now_us
        self._clock = clock
        self._asked_at: float | None = None
        self._asking: threading.Thread | None = None
        self._refused: BrokersRefuse | None = None
        self.problem: str | None = None
        """Why the sidecar waits for the brokers, as a clause; None if they answer."""

    def look(self) -> None:
        """Look for an answer since the last call. Returns at once; to be called regularly."""
        now = self._clock()
        silent = now - self._brokers.answered_at
        # An answer between two calls ends a silence, too. A request that was sent during the silence may have been
        # refused after the answer.
        if silent < _ASK_AFTER_SECONDS or self._asked_at is None or self._asked_at <= self._brokers.answered_at:
            self._asked_at = self._refused = None
            if self.problem is not None:
                self.problem = None
                self._say(f"the Kafka brokers at {self._brokers.servers} answer again")
        if silent < _ASK_AFTER_SECONDS:
            return
        if self._asking is None or not self._asking.is_alive():
            self._asked_at = now if self._asked_at is None else self._asked_at
            self._asking = threading.Thread(target=self._request, name="streamproof-brokers", daemon=True)
            self._asking.start()
        if self.problem is None and self._asked_at is not None and now - self._asked_at >= _SAY_AFTER_SECONDS:
            since = (rfc3339(self._now_us() - round(silent * 1e6)) or "")[:_SECOND_LETTERS]
            self.problem = f"the Kafka brokers at {self._brokers.servers} do not answer"
            if self._refused is not None:
                self.problem = str(self._refused)
            self._say(f"{self.problem} (last answer at {since}Z); no record is verified until they answer")

    def _request(self) -> None:
        try:
            self._ask()
        except BrokersRefuse as error:
            self._refused = error
        except BrokersUnreachable:
            return


class OutageNote:
    """A file of the state that exists from a failed request to the brokers until a generation begins.

    ``noted``: whether a request has failed since the last generation began, in this process or an earlier one.
    """

    def __init__(self, state: Path) -> None:
        self._file = state / FILE
        self.noted = self._file.exists()

    def note(self) -> None:
        """Note that a request failed. If the file cannot be written, only this process knows it."""
        if not self.noted:
            self.noted = True
            with suppress(OSError):
                open_new(self._file).close()

    def clear(self) -> None:
        """Remove the note, once the outage is committed to the facts."""
        if self.noted:
            self.noted = False
            with suppress(OSError):
                self._file.unlink(missing_ok=True)


def is_outage(error: BaseException) -> bool:
    """Whether a query ended because the brokers did not answer."""
    return any(isinstance(cause, BrokersUnreachable) or NO_ANSWER.search(text_of(cause)) for cause in causes_of(error))
