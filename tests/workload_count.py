"""What a workload's results must contain, and what they contain: counted from the topics alone, without engine code."""

from __future__ import annotations

import json
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Message

from generator.workloads.seam import Stream, Workload

Cell = tuple[int | None, str]
"""Start of a window in milliseconds, None without windows, and key."""
Event = tuple[str, int, str, Mapping[str, Any]]
"""Key, time in milliseconds, id, all fields."""


def event_of(stream: Stream, value: bytes) -> Event:
    """Decode an event."""
    fields = fields_of(stream, value)
    at = fields[stream.fields["event_time"]]
    time_ms = epoch_ms(at) if stream.time_unit is None else int(at)
    return str(fields[stream.fields["key"]]), time_ms, str(fields[stream.fields["id"]]), fields


def fields_of(stream: Stream, value: bytes) -> dict[str, Any]:
    """Decode the fields of an event."""
    if stream.layout:
        number, _, at = struct.unpack_from(">qqq", value)
        return {"id": number, "time": at, "consumers": value[24:256].decode()}
    if stream.columns:
        return dict(zip(stream.columns, value.decode().split("\t"), strict=True))
    decoded: dict[str, Any] = json.loads(value)
    return decoded


def epoch_ms(text: str) -> int:
    """Decode a time without a zone, which is UTC."""
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def keys_of(workload: Workload, event: Event) -> list[str]:
    """The keys of an event."""
    return event[0].split() if workload.streams[0].has_words else [event[0]]


def cells_of(workload: Workload, events: Iterable[Event], window_ms: int) -> dict[Cell, list[Event]]:
    """The events of each cell, of workloads with adjacent windows or without windows."""
    cells: dict[Cell, list[Event]] = defaultdict(list)
    for event in events:
        start = None if workload.operator(window_ms) else event[1] // window_ms * window_ms
        for key in keys_of(workload, event):
            cells[start, key].append(event)
    return cells


def results_of(workload: Workload, messages: Iterable[Message]) -> list[tuple[Cell, dict[str, Any]]]:
    """The cell and the fields of each result, in order."""
    output = workload.output([stream.name for stream in workload.streams])
    raw, key_path = output.get("format"), output["fields"]["key"]
    found: list[tuple[Cell, dict[str, Any]]] = []
    for message in messages:
        value = message.value() or b""
        fields = (
            json.loads(value) if raw is None else dict(zip(raw["fields"], struct.unpack(">qqqq", value), strict=True))
        )
        key = json.loads(message.key() or b"") if key_path == "$key" else fields[key_path]
        start = fields.get("windowStart")
        found.append(((None if start is None else epoch_ms(start), str(key)), fields))
    return found


def deviations(
    workload: Workload, events: Iterable[Event], messages: Iterable[Message], window_ms: int
) -> dict[tuple[str, Cell], int]:
    """Compare the newest values of each cell with its events: class and cell -> number of contributions."""
    cells, stated = cells_of(workload, events, window_ms), dict(results_of(workload, messages))
    assert stated.keys() <= cells.keys()
    [count] = [name for name, what in workload.aggregates.items() if what == "count"]
    found: dict[tuple[str, Cell], int] = {}
    for cell, its_events in cells.items():
        values = stated.get(cell, {count: 0})
        if (surplus := values[count] - len(its_events)) != 0:
            found["missing" if surplus < 0 else "duplicate", cell] = abs(surplus)
        elif any(values[name] != _aggregate(what, its_events) for name, what in workload.aggregates.items()):
            found["wrong_value", cell] = 1
    return found


def ids_in(workload: Workload, messages: Iterable[Message]) -> Counter[tuple[Cell, str]]:
    """How often each id is in a result of each cell."""
    fields = workload.output([stream.name for stream in workload.streams])["fields"]
    if "id" in fields:
        return Counter((cell, str(found[fields["id"]])) for cell, found in results_of(workload, messages))
    return Counter(
        (cell, str(one)) for cell, found in results_of(workload, messages) for one in found[workload.id_lists[0]]
    )


def pairs_of(streams: Sequence[Iterable[Event]], after_ms: int) -> dict[tuple[str, str], Cell]:
    """The ids of each pair of a left event and a right one that is up to ``after_ms`` later, with their cell: buckets
    are as long."""
    lefts, rights = streams
    of_key: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for key, at, right_id, _ in rights:
        of_key[key].append((at, right_id))
    return {
        (left_id, right_id): (at // after_ms * after_ms, key)
        for key, at, left_id, _ in lefts
        for later, right_id in of_key[key]
        if at <= later <= at + after_ms
    }


def wrong_pairs(
    workload: Workload, streams: Sequence[Iterable[Event]], results: Iterable[bytes], after_ms: int
) -> Counter[tuple[str, Cell]]:
    """Compare the pairs in results with those of the events: class and cell -> number of contributions."""
    stated = Counter(tuple(str(found[name][0]) for name in workload.id_lists) for found in map(json.loads, results))
    pairs = pairs_of(streams, after_ms)
    assert stated.keys() <= pairs.keys()
    wrong: Counter[tuple[str, Cell]] = Counter()
    for pair, cell in pairs.items():
        if stated[pair] != 1:
            wrong["duplicate" if stated[pair] else "missing", cell] += 2 * abs(stated[pair] - 1)
    return wrong


def _aggregate(what: str, events: list[Event]) -> int:
    how, _, path = what.rstrip(")").partition("(")
    compute: dict[str, Any] = {"count": len, "sum": sum, "min": min, "max": max}
    return int(compute[how]([int(event[3][path]) if path else 1 for event in events]))
