"""What a workload's results must contain, and what they contain: counted from the topics alone, without engine code."""

from __future__ import annotations

import json
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from statistics import fmean
from typing import Any, Protocol

from generator.workloads.seam import Stream, Workload
from validator.state.tables import StateTables, Table

Cell = tuple[int | None, str]
"""Start of a window in milliseconds, None without windows, and key."""
Event = tuple[str, int, str, Mapping[str, Any]]
"""Key, time in milliseconds, id, all fields."""


def event_of(stream: Stream, value: bytes) -> Event:
    """Decode an event."""
    fields = fields_of(stream, value)
    at = fields[stream.fields["event_time"]]
    time_ms = epoch_ms(at) if stream.time_unit is None else int(at)
    return str(fields[stream.fields["key"]]), time_ms, _id_of(stream, fields), fields


def _id_of(stream: Stream, fields: Mapping[str, Any]) -> str:
    if not stream.id_paths:
        return str(fields[stream.fields["id"]])
    parts = []
    for path in stream.id_paths:
        name, _, number = path.partition(".")
        parts.append(str(fields[name][int(number)] if number else fields[name]))
    return json.dumps(parts, separators=(",", ":"))


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
    """The events of each cell, of workloads with windows of one length or without windows."""
    cells: dict[Cell, list[Event]] = defaultdict(list)
    oracle = _oracle(workload, window_ms)
    size_ms = _length_ms(oracle, "size", 0)
    slide_ms = _length_ms(oracle, "slide", size_ms)
    for event in events:
        at = event[1]
        starts = range(at // slide_ms * slide_ms, at - size_ms, -slide_ms) if size_ms else (None,)
        for key in keys_of(workload, event):
            for start in starts:
                cells[start, key].append(event)
    return cells


def _oracle(workload: Workload, window_ms: int) -> dict[str, Any]:
    return workload.oracle([stream.name for stream in workload.streams], window_ms)


def _length_ms(oracle: Mapping[str, Any], name: str, default_ms: int) -> int:
    return int(oracle[name].removesuffix("ms")) if name in oracle else default_ms


class Keyed(Protocol):
    """A record."""

    def key(self) -> bytes | None: ...

    def value(self) -> bytes | None: ...


def results_of(workload: Workload, messages: Iterable[Keyed]) -> list[tuple[Cell, dict[str, Any]]]:
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
    workload: Workload, events: Iterable[Event], messages: Iterable[Keyed], window_ms: int
) -> dict[tuple[str, Cell], int]:
    """Compare the newest values of each cell with its events: class and cell -> number of contributions."""
    cells, stated = cells_of(workload, events, window_ms), dict(results_of(workload, messages))
    assert stated.keys() <= cells.keys()
    every = _oracle(workload, window_ms).get("every", 1)
    [count] = [name for name, what in workload.aggregates.items() if what == "count"]
    found: dict[tuple[str, Cell], int] = {}
    for cell, its_events in cells.items():
        values = stated.get(cell, {count: 0})
        owed = len(its_events) // every * every
        if values[count] > len(its_events):
            found["duplicate", cell] = values[count] - len(its_events)
        elif values[count] < owed:
            found["missing", cell] = owed - values[count]
        elif values[count] == len(its_events) and any(
            values[name] != _aggregate(what, its_events) for name, what in workload.aggregates.items()
        ):
            found["wrong_value", cell] = 1
    return found


def ids_in(workload: Workload, messages: Iterable[Keyed]) -> Counter[tuple[Cell, str]]:
    """How often each id is in a result of each cell."""
    fields = workload.output([stream.name for stream in workload.streams])["fields"]
    if "id" in fields:
        return Counter((cell, str(found[fields["id"]])) for cell, found in results_of(workload, messages))
    return Counter(
        (cell, id_text(one)) for cell, found in results_of(workload, messages) for one in found[workload.id_lists[0]]
    )


def wrong_fields(
    workload: Workload, events: Iterable[Event], messages: Iterable[Keyed]
) -> dict[tuple[str, Cell, str], int]:
    """The cell and the id of each result of an event whose kept fields are not those of its event."""
    path = workload.output([stream.name for stream in workload.streams])["fields"]["id"]
    of_id = {event[2]: event[3] for event in events}
    found: dict[tuple[str, Cell, str], int] = {}
    for cell, stated in results_of(workload, messages):
        fields = of_id[str(stated[path])]
        kept = {name: fields[name] for name in workload.kept if name in fields}
        for name, factor in workload.factors.items():
            kept[name], stated[name] = Decimal(str(kept[name])) * Decimal(factor), Decimal(stated[name])
        if any(stated.get(name) != value for name, value in kept.items()):
            found["wrong_value", cell, str(stated[path])] = 1
    return found


def id_text(one: Any) -> str:
    """An id in a result; of several fields, as `event_of` returns it."""
    return json.dumps(one, separators=(",", ":")) if isinstance(one, list) else str(one)


def pairs_of(workload: Workload, streams: Sequence[Iterable[Event]], window_ms: int) -> dict[tuple[str, str], Cell]:
    """The ids of each pair of a left event and a right one that is not too much later, and not after the left one's own
    end, with their cell."""
    lefts, rights = streams
    oracle = _oracle(workload, window_ms)
    after_ms, bucket_ms = _length_ms(oracle, "after", 0), _length_ms(oracle, "bucket", 0)
    end = oracle.get("until", {}).get("path")
    of_key: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for key, at, right_id, _ in rights:
        of_key[key].append((at, right_id))
    return {
        (left_id, right_id): (at // bucket_ms * bucket_ms, key)
        for key, at, left_id, fields in lefts
        for later, right_id in of_key[key]
        if at <= later <= (at + after_ms if end is None else min(at + after_ms, fields[end]))
    }


def wrong_pairs(
    workload: Workload, streams: Sequence[Iterable[Event]], results: Iterable[bytes], window_ms: int
) -> Counter[tuple[str, Cell]]:
    """Compare the pairs in results with those of the events: class and cell -> number of contributions."""
    stated = Counter(tuple(id_text(found[name][0]) for name in workload.id_lists) for found in map(json.loads, results))
    pairs = pairs_of(workload, streams, window_ms)
    assert stated.keys() <= pairs.keys()
    wrong: Counter[tuple[str, Cell]] = Counter()
    for pair, cell in pairs.items():
        if stated[pair] != 1:
            wrong["duplicate" if stated[pair] else "missing", cell] += 2 * abs(stated[pair] - 1)
    return wrong


def violations(tables: StateTables) -> dict[tuple[str, Cell], int]:
    """What a sidecar has on record: violation class and cell -> number of contributions."""
    newest: dict[str, tuple[tuple[str, Cell], int]] = {}
    rows = [row for part in tables.scan(Table.VIOLATIONS) for row in part.to_pylist()]
    for row in sorted(rows, key=lambda row: row["batch"]):
        start_us = row["window_start_us"]
        cell = (None if start_us is None else start_us // 1000, row["key"])
        newest[row["violation"]] = ((row["class"], cell), row["count"])
    return {place: count for place, count in newest.values() if count}


def _aggregate(what: str, events: list[Event]) -> Any:
    how, _, path = what.rstrip(")").partition("(")
    compute: dict[str, Any] = {"count": len, "sum": sum, "sum_mod64": sum, "min": min, "max": max, "avg": fmean}
    compute["distinct"] = lambda values: len(set(values))
    return compute[how]([int(event[3][path]) if path else 1 for event in events])
