"""Sends changes of the verdict to the addresses of `notify`. No decision depends on it, and it delays no batch."""

from __future__ import annotations

import hashlib
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from validator.config.notify import PLACEHOLDERS, Notification
from validator.model.terminal import plain
from validator.publish.atomic import replace_file
from validator.publish.report_types import Report
from validator.publish.sentences import headline, why

FILE: Final = "notified.json"
SETTLE_SECONDS: Final = 60.0
"""A change to or from `unknown` is sent once it has lasted this long: a restart of a broker must not page twice."""
REMIND_SECONDS: Final = 86_400.0
_TIMEOUT_SECONDS: Final = 10.0
_END_SECONDS: Final = 8.0
"""Longest wait for the last messages at the end of a run."""
_RETRY_SECONDS: Final = (10.0, 30.0, 120.0, 600.0)
_LOOK_SECONDS: Final = 1.0


class NotDelivered(Exception):
    """An address did not accept a message. The text does not contain the address, which may be a secret."""


@dataclass(frozen=True)
class _Sent:
    """The last message that an address accepted. ``at``: seconds since the epoch; 0: none was needed so far."""

    verdict: str = "pass"
    at: float = 0.0


class Notifier:
    """Gets each report of a run, and sends what is new to each address in a thread of its own.

    ``state``: folder with the file of what was sent, so that a restart sends nothing twice. ``settle_seconds``: how
    long a change to or from `unknown` must last; 0 for a report that is final.
    """

    def __init__(
        self,
        places: Sequence[Notification],
        state: Path,
        say: Callable[[str], None],
        *,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        self._file = state / FILE
        self._lock = threading.Lock()
        self._sent = _read(self._file)
        self._channels = [
            _Channel(place, self._sent.get(_name(place), _Sent()), self._keep, say, settle_seconds) for place in places
        ]

    def update(self, report: Report) -> None:
        """Take note of the newest report. Returns at once."""
        for channel in self._channels:
            channel.update(report)

    def close(self) -> None:
        """Send what is due now, for at most a few seconds, and end."""
        for channel in self._channels:
            channel.end()
        deadline = time.monotonic() + _END_SECONDS
        for channel in self._channels:
            channel.join(deadline - time.monotonic())

    def _keep(self, place: Notification, sent: _Sent) -> None:
        with self._lock:
            self._sent = {**self._sent, _name(place): sent}
            known = {name: vars(kept) for name, kept in self._sent.items()}
            with suppress(OSError):  # then the message may be sent again after a restart
                replace_file(self._file, json.dumps(known) + "\n")


class _Channel:
    """One address."""

    def __init__(
        self,
        place: Notification,
        sent: _Sent,
        keep: Callable[[Notification, _Sent], None],
        say: Callable[[str], None],
        settle_seconds: float,
    ) -> None:
        self._place, self._sent, self._keep, self._say = place, sent, keep, say
        self._settle_seconds = settle_seconds
        self._report: Report | None = None
        self._since = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streamproof-notify", daemon=True)
        self._thread.start()

    def update(self, report: Report) -> None:
        if self._report is None or report["outcome"] != self._report["outcome"]:
            self._since = time.monotonic()
        self._report = report

    def end(self) -> None:
        self._ended.set()

    def join(self, seconds: float) -> None:
        self._thread.join(max(0.0, seconds))

    def _run(self) -> None:
        failures, retry_at = 0, 0.0
        while True:
            ending = self._ended.wait(_LOOK_SECONDS)
            report = self._report
            if report is not None and self._is_due(report) and (ending or time.monotonic() >= retry_at):
                try:
                    post(self._place, message_of(report, self._sent.verdict))
                except NotDelivered as error:
                    if not failures or ending:
                        self._say(f"the change to {report['outcome']} was not delivered: {error}; trying again")
                    retry_at = time.monotonic() + _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)]
                    failures += 1
                else:
                    failures = 0
                    self._sent = _Sent(report["outcome"], time.time())
                    self._keep(self._place, self._sent)
            if ending:
                return

    def _is_due(self, report: Report) -> bool:
        verdict = report["outcome"]
        if verdict == self._sent.verdict:
            open_ = verdict == "fail" and report["violations_unacknowledged"] > 0
            return open_ and time.time() - self._sent.at >= REMIND_SECONDS
        return verdict == "fail" or time.monotonic() - self._since >= self._settle_seconds


def message_of(report: Report, previous: str) -> dict[str, str]:
    """Return the parts of a message, by the names of `PLACEHOLDERS`."""
    change = f"{previous} -> {report['outcome']}" if previous != report["outcome"] else f"still {previous}"
    values = (
        report["pipeline"],
        report["guarantee"],
        report["outcome"],
        previous,
        report["time"] or "",
        why(report),
        f"{headline(report).rstrip('.')} ({change}): {why(report)}",
    )
    return {name: plain(value) for name, value in zip(PLACEHOLDERS, values, strict=True)}


def test_message(pipeline: str, guarantee: str) -> dict[str, str]:
    """Return the parts of a message that changes nothing, as `message_of` does."""
    text = f"Test message of streamproof for the pipeline {pipeline}"
    values = (pipeline, guarantee, "test", "test", "", "`streamproof notify test` sent it", text)
    return {name: plain(value) for name, value in zip(PLACEHOLDERS, values, strict=True)}


def post(place: Notification, message: Mapping[str, str]) -> None:
    """Send one message. Raises NotDelivered."""
    body, content_type = body_of(place, dict(message))
    request = urllib.request.Request(  # noqa: S310 - the configuration accepts http and https only
        place.url.get_secret_value(), body.encode(), {"Content-Type": content_type, "User-Agent": "streamproof"}
    )
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=_TIMEOUT_SECONDS):
            return
    except urllib.error.HTTPError as error:
        with error:
            raise NotDelivered(f"{place.host} answered with status {error.code}") from None
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        said = getattr(reason, "strerror", None) or type(reason).__name__
        raise NotDelivered(f"{place.host} does not answer ({said})") from None


def body_of(place: Notification, message: dict[str, str]) -> tuple[str, str]:
    """Return the body of a message and its content type."""
    if place.template is not None:
        blank = place.filled(place.template, dict.fromkeys(PLACEHOLDERS, ""))
        try:
            json.loads(blank)
        except ValueError:
            return place.filled(place.template, message), "text/plain; charset=utf-8"
        in_json = {name: json.dumps(value)[1:-1] for name, value in message.items()}
        return place.filled(place.template, in_json), "application/json"
    if place.form == "slack":
        text = message["text"]
        for sign, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
            text = text.replace(sign, escaped)
        return json.dumps({"text": text}), "application/json"
    return json.dumps(message), "application/json"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would send the message, as a GET, to an address that the configuration does not name."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _name(place: Notification) -> str:
    """The name of an address in the file: the address itself may be a secret."""
    return hashlib.sha256(place.url.get_secret_value().encode()).hexdigest()[:16]


def _read(file: Path) -> dict[str, _Sent]:
    try:
        return {
            name: _Sent(str(kept["verdict"]), float(kept["at"])) for name, kept in json.loads(file.read_text()).items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
