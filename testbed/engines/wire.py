"""Converts between bytes and the core's values, in the forms that a workload names.

Results are JSON with times as text. Those of PGVal's workloads are its ``PageStatistics`` and ``ClickUpdateEvent``, as
Jackson writes them. An absent update has id 0 and the epoch as its time. Kafka keys are the key as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from generator.wire import json_bytes, timestamp_text
from generator.workloads.kinds import DEFAULT, named
from generator.workloads.seam import Stream, Workload
from testbed.engines.core import EventId, LateEvent, Record, Result
from testbed.engines.join import is_right

if TYPE_CHECKING:
    from testbed.engines.settings import EventFilter

_PGVAL: Final = named(DEFAULT)
_CLICKS: Final = _PGVAL.streams[0]
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class FilteredOut(NamedTuple):
    """An event that the filter removes."""

    offset: int


class Decoder:
    """Decodes the events of a stream. One per partition, since consecutive events often share their time.

    Keeps what the results of the workload ``of`` need of an event beside id, key and time, until it is removed from
    `more`.
    """

    def __init__(
        self,
        stream: Stream = _CLICKS,
        prefix: str | None = None,
        where: EventFilter | None = None,
        of: Workload | None = None,
    ) -> None:
        """``prefix``: added to every id, which then is a string."""
        self._stream = stream
        self._key, self._time = stream.fields["key"], stream.fields["event_time"]
        self._id = stream.fields.get("id", "")
        self._time_of = time_ms if stream.time_unit is None else int
        self._where = where
        self._prefix = prefix
        self._of = of
        self._kept = () if of is None else of.kept
        self._at: object = None
        self._ms = 0
        self.more: dict[EventId, Mapping[str, Any]] = {}

    def decode(self, offset: int, value: bytes | None) -> Record | FilteredOut | None:
        """Return the event in ``value``; None if it has none."""
        if value is None:
            return None
        try:
            event = self._event(value)
            at = event[self._time]
            if at != self._at:
                self._ms = self._time_of(at)
                self._at = at
            event_id = _joined(event, self._stream.id_paths) if self._stream.id_paths else event[self._id]
            key = event[self._key]
            if self._where is not None and not self._where.passes(event.get(self._where.field)):
                return FilteredOut(offset)
        except (ValueError, LookupError, TypeError):
            return None
        if type(event_id) is not int and type(event_id) is not str:
            return None
        if self._prefix is not None:
            event_id = f"{self._prefix}{event_id}"
        if self._of is not None and self._kept:
            self.more[event_id] = _kept(event, self._of)
        return offset, (key if isinstance(key, str) else str(key),), self._ms, event_id

    def records(self, offset: int, value: bytes | None) -> list[Record] | FilteredOut | None:
        """As `decode`, but once for each key of the event."""
        record = self.decode(offset, value)
        if value is None or record is None:
            return None
        if isinstance(record, FilteredOut):
            return record
        if self._stream.is_split:
            return [(offset, (word,), *record[2:]) for word in record[1][0].split()] or FilteredOut(offset)
        routed = None if self._of is None else self._of.routed(value)
        if routed is None:
            return [record]
        return [(offset, (key,), *record[2:]) for key in routed] or FilteredOut(offset)

    def _event(self, value: bytes) -> dict[str, Any]:
        if self._stream.layout:
            return {name: _placed(value, **place) for name, place in self._stream.layout.items()}
        if not self._stream.columns:
            event: dict[str, Any] = json.loads(value)
            return event
        texts = value.decode().split("\t")
        event = dict(zip(self._stream.columns, texts, strict=True))
        event[self._id] = int(event[self._id])
        return event


def _placed(value: bytes, *, offset: int, type: str, size: int = 8) -> int | str:  # noqa: A002 - as in the format
    """A field of raw bytes. Raises ValueError."""
    part = value[offset : offset + size]
    if len(part) < size:
        raise ValueError("the value is too short")
    return part.decode() if type == "text" else int.from_bytes(part, "big", signed=True)


def _kept(event: Mapping[str, Any], of: Workload) -> dict[str, Any]:
    """Fields for a result. Products are exact, as text."""
    return {
        name: str(Decimal(event[name]) * Decimal(of.factors[name])) if name in of.factors else event[name]
        for name in of.kept
        if name in event
    }


def _joined(event: Mapping[str, Any], paths: Sequence[str]) -> str:
    """Return an id of several fields: the JSON array of their texts. Raises LookupError, TypeError."""
    return json_bytes([str(_at(event, path)) for path in paths]).decode()


def _at(event: Any, path: str) -> Any:
    for step in path.split("."):
        event = event[int(step)] if isinstance(event, list) else event[step]
    return event


def _listed(ids: Sequence[EventId], stream: Stream) -> Sequence[EventId | list[str]]:
    """Return ids as results list them. An invented id has no fields: it is the first of them."""
    if not stream.id_paths:
        return ids
    parts = [json.loads(text) if text.startswith("[") else [text] for text in map(str, ids)]
    return [fields + [""] * (len(stream.id_paths) - len(fields)) for fields in parts]


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


def result_bytes(
    result: Result, right_prefix: str | None = None, of: Workload = _PGVAL, more: Mapping[str, Any] = _NOTHING
) -> bytes:
    """Return the result of a window: a ``PageStatistics`` record of PGVal's workloads. Ids with the prefix
    ``right_prefix`` are those of the right input. ``more``: further members."""
    left: tuple[EventId, ...] = result.ids
    right: list[EventId] = []
    if right_prefix is not None:
        left = tuple(event_id for event_id in result.ids if not is_right(event_id, right_prefix))
        right = [_bare(event_id, right_prefix) for event_id in result.ids if is_right(event_id, right_prefix)]
    # PGVal's workload with one stream has a list of another one, too.
    lists = zip(of.id_lists, (of.streams[0], of.streams[-1]), (left, right), strict=False)
    listed = {name: _listed(ids, stream) for name, stream, ids in lists}
    return json_bytes({of.key: result.key[0], **_window(result), **listed, **more})


def running_bytes(result: Result, of: Workload = _PGVAL) -> bytes:
    """Return a result without a window: its key and ids."""
    return b"{%b,%b}" % (_member(of.key, result.key[0]), _member(of.id_lists[0], result.ids))


def values_bytes(result: Result, rows: Sequence[Mapping[str, Any]], of: Workload) -> bytes:
    """Return a result that states aggregates of its events. ``rows``: their fields."""
    window = _window(result) if result.window_end_ms else {}
    return of.stated({of.key: result.key[0], **window, **beside_ids(rows, of)})


def beside_ids(rows: Sequence[Mapping[str, Any]], of: Workload) -> dict[str, Any]:
    """Return what a result has of the fields of its events, ``rows``: those that it carries, and aggregates."""
    carried = {name: row[name] for row in rows for name in of.carried if name in row}
    return carried | {name: aggregated(what, rows) for name, what in of.aggregates.items()}


def changes(result: Result, rows: Sequence[Mapping[str, Any]], of: Workload, slide_ms: int) -> dict[str, float | None]:
    """Return the relative changes in the window ``result``. ``rows``: the fields of its events."""
    last = result.window_end_ms // slide_ms - 1
    periods = {time_ms // slide_ms: row for time_ms, row in zip(result.times_ms, rows, strict=True)}
    return {
        f"{name}Change{back}": _change(periods.get(last - back, {}).get(name), periods.get(last, {}).get(name))
        for name in of.changes
        for back in range(1, (result.window_end_ms - result.window_start_ms) // slide_ms)
    }


def _change(then: float | None, now: float | None) -> float | None:
    return None if not then or now is None else (now - then) / then


def _window(result: Result) -> dict[str, str]:
    return {
        "windowStart": timestamp_text(result.window_start_ms).decode(),
        "windowEnd": timestamp_text(result.window_end_ms).decode(),
    }


def aggregated(what: str, rows: Sequence[Mapping[str, Any]]) -> int | float | None:
    """Return an aggregate of whole numbers: `count`, or `sum`, `sum_mod64`, `min`, `max`, `avg` or `distinct` of a
    field."""
    if what == "count":
        return len(rows)
    how, _, path = what.rstrip(")").partition("(")
    numbers = [int(row[path]) for row in rows if path in row]
    if how == "sum_mod64":
        return sum(numbers) % (1 << 64)
    if how == "sum":
        return sum(numbers)
    if how == "distinct":
        return len(set(numbers))
    if how == "avg":
        return sum(numbers) / len(numbers) if numbers else None
    return {"min": min, "max": max}[how](numbers, default=None)


def event_bytes(
    event_id: EventId | list[str],
    key: tuple[str, ...],
    time_ms: int,
    stream: Stream = _CLICKS,
    more: Mapping[str, Any] = _NOTHING,
) -> bytes:
    """Return a passthrough's result for an event, or a late event: its id, time and key, and ``more``."""
    time = timestamp_text(time_ms).decode()
    at = stream.fields
    return json_bytes({at.get("id", "id"): event_id, at["event_time"]: time, at["key"]: key[0], **more})


def late_bytes(event: LateEvent, right_prefix: str | None = None, of: Workload = _PGVAL) -> bytes:
    """Return a late event: with PGVal's workloads a ``ClickUpdateEvent`` record of a late click or update."""
    on_right = right_prefix is not None and is_right(event.id, right_prefix)
    event_id = _bare(event.id, right_prefix) if on_right and right_prefix is not None else event.id
    stream = of.streams[-1 if on_right else 0]
    if not stream.late_fields:
        return event_bytes(_listed((event_id,), stream)[0], event.key, event.time_ms, stream)
    time = timestamp_text(event.time_ms)
    if on_right:
        return b'{%b,"clickId":0,"clickTimestamp":"1970-01-01T00:00:00.000","updateId":%b,"updateTimestamp":"%b"}' % (
            _member("page", event.key[0]),
            json_bytes(event_id),
            time,
        )
    return b'{%b,"clickId":%b,"clickTimestamp":"%b","updateId":0,"updateTimestamp":"1970-01-01T00:00:00.000"}' % (
        _member("page", event.key[0]),
        json_bytes(event_id),
        time,
    )


def _bare(event_id: EventId, prefix: str) -> EventId:
    """Return an id of the right input without its prefix, as in its events."""
    text = str(event_id).removeprefix(prefix)
    return int(text) if text.isdigit() else text


def _member(name: str, value: object) -> bytes:
    return b"%b:%b" % (json_bytes(name), json_bytes(value))
