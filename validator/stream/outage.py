"""Outages of the brokers: time in which nothing can be read does not prove a loss (docs/decisions/0143)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from validator.state.folder import open_new
from validator.stream.brokers import BrokersUnreachable
from validator.stream.failures import NO_ANSWER, causes_of, text_of

FILE: Final = "brokers-unanswered"


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
