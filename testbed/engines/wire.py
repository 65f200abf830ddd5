"""Converts between bytes and the core's values, in PGVal's formats.

Source: PGVal's ``ClickEvent`` (in), ``PageStatistics`` and ``ClickUpdateEvent`` (out), as Jackson writes them. An
absent update has id 0 and the epoch as its time. Kafka keys are the page as JSON, or a JSON array of the key fields if
there are several.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from generator.wire import json_bytes, timestamp_text
from testbed.engines.core import EventId, LateEvent, Record, Result
from testbed.engines.join import is_right

if TYPE_CHECKING:
    from testbed.engines.settings import EventFilter

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class FilteredOut(NamedTuple):
    """An event that the filter removes."""

    offset: int


class Decoder:
    """Decodes click events. One per partition, since consecutive events often share their time."""

    def __init__(self, prefix: str | None = None, where: EventFilter | None = None) -> None:
        """``prefix``: added to every id, which then is a string."""
        self._field = None if where is None else where.field
        self._accepted_values = frozenset(() if where is None else map(_comparable, where.one_of))
        self._prefix = prefix
        self._text = ""
        self._ms = 0

    def decode(self, offset: int, value: bytes | None) -> Record | FilteredOut | None:
        """Return the event in ``value``; None if it has none."""
        if value is None:
            return None
        try:
            event = json.loads(value)
            text = event["timestamp"]
            if text != self._text:
                self._ms = time_ms(text)
                self._text = text
            event_id = event["id"]
            key = (event["page"],)
        except (ValueError, KeyError, TypeError):
            return None
        if type(event_id) is not int and type(event_id) is not str:
            return None
        if self._field is not None and _comparable(event.get(self._field)) not in self._accepted_values:
            return FilteredOut(offset)
        return (offset, key, self._ms, event_id if self._prefix is None else f"{self._prefix}{event_id}")


def time_ms(text: str) -> int:
    """Convert ISO 8601 (no zone means UTC) to whole milliseconds since the epoch. Raises ValueError, TypeError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - _EPOCH
    return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000


def key_bytes(key: tuple[str, ...]) -> bytes:
    """Return the Kafka key of a cell."""
    return json_bytes(key[0])


def result_bytes(result: Result, right_prefix: str | None = None) -> bytes:
    """Return a ``PageStatistics`` record. Ids with the prefix ``right_prefix`` are those of updates."""
    clicks: tuple[EventId, ...] = result.ids
    updates: list[EventId] = []
    if right_prefix is not None:
        clicks = tuple(event_id for event_id in result.ids if not is_right(event_id, right_prefix))
        updates = [_bare(event_id, right_prefix) for event_id in result.ids if is_right(event_id, right_prefix)]
    return b'{%b,"windowStart":"%b","windowEnd":"%b","clickIds":[%b],"updateIds":[%b]}' % (
        _page(result.key),
        timestamp_text(result.window_start_ms),
        timestamp_text(result.window_end_ms),
        _ids(clicks),
        _ids(tuple(updates)),
    )


def running_bytes(result: Result) -> bytes:
    """Return a result without a window: its key and ids."""
    return b'{%b,"clickIds":[%b]}' % (_page(result.key), _ids(result.ids))


def event_bytes(event_id: EventId, key: tuple[str, ...], time_ms: int) -> bytes:
    """Return a passthrough's result for an event: its id, time and key only."""
    return b'{"id":%b,"timestamp":"%b",%b}' % (
        json_bytes(event_id),
        timestamp_text(time_ms),
        _page(key),
    )


def late_bytes(event: LateEvent, right_prefix: str | None = None) -> bytes:
    """Return a ``ClickUpdateEvent`` record of a late click, or of a late update."""
    if right_prefix is not None and is_right(event.id, right_prefix):
        return b'{%b,"clickId":0,"clickTimestamp":"1970-01-01T00:00:00.000","updateId":%b,"updateTimestamp":"%b"}' % (
            _page(event.key),
            json_bytes(_bare(event.id, right_prefix)),
            timestamp_text(event.time_ms),
        )
    return b'{%b,"clickId":%b,"clickTimestamp":"%b","updateId":0,"updateTimestamp":"1970-01-01T00:00:00.000"}' % (
        _page(event.key),
        json_bytes(event.id),
        timestamp_text(event.time_ms),
    )


def _bare(event_id: EventId, prefix: str) -> EventId:
    """Return an id of the right input without its prefix, as in its events."""
    text = str(event_id).removeprefix(prefix)
    return int(text) if text.isdigit() else text


def _comparable(value: object) -> object:
    """Return a form of a JSON scalar that compares by type and value: true differs from 1, and numbers compare by
    value."""
    if isinstance(value, bool):
        return ("bool", value)
    return value if isinstance(value, str | int | float) else None


def _page(key: tuple[str, ...]) -> bytes:
    return b'"page":%b' % json_bytes(key[0])


def _ids(ids: tuple[EventId, ...]) -> bytes:
    return json_bytes(ids)[1:-1]
