"""Records as well-known pipelines write them: those of a perfect engine, and the same with one loss.

The names are those of `streamproof config example NAME`, then shapes that only `config init` is tested with.
"""

from __future__ import annotations

import io
import json
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final
from zoneinfo import ZoneInfo

import fastavro
import msgpack

from generator.wire import timestamp_text
from testbed.engines.core import LateEvent, Result
from testbed.engines.wire import late_bytes, result_bytes
from validator.codecs.one_record import Record
from validator.model.schemas import RegisteredSchema, Schemas

START_MS: Final = 1_767_261_600_000
"""2026-01-01T10:00:00Z."""
Row = tuple[int, str, int]
"""Number, key and time (ms) of an event."""


@dataclass(frozen=True)
class Shape:
    """``inputs``, ``outputs``, ``rejected``: topic -> records. ``lost``: output topic -> its records with a loss."""

    inputs: Mapping[str, Sequence[Record]]
    outputs: Mapping[str, Sequence[Record]]
    lost: Mapping[str, Sequence[Record]]
    late: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    rejected: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    schemas: Schemas = field(default_factory=dict)

    @property
    def logs(self) -> dict[str, Sequence[Record]]:
        return {**self.inputs, **self.late, **self.rejected, **self.outputs}

    @property
    def broken(self) -> dict[str, Sequence[Record]]:
        return {**self.logs, **self.lost}


SHAPES: Final[dict[str, Callable[[], Shape]]] = {}
"""Name -> what makes the records."""


def shape(make: Callable[[], Shape]) -> Callable[[], Shape]:
    SHAPES[make.__name__.replace("_", "-")] = make
    return make


def log(records: Iterable[Record]) -> list[Record]:
    return [record._replace(offset=offset) for offset, record in enumerate(records)]


def one(value: Any, key: Any = None, at_ms: int = START_MS, headers: Sequence[tuple[str, bytes]] = ()) -> Record:
    def raw(part: Any) -> bytes | None:
        if part is None or isinstance(part, bytes):
            return part
        return part.encode() if isinstance(part, str) else json.dumps(part).encode()

    return Record(raw(value), raw(key), headers, at_ms * 1_000)


def rows(number: int, every_ms: int, keys: Sequence[str] = ("/help", "/index", "/shop")) -> list[Row]:
    return [(n, keys[n % len(keys)], START_MS + n * every_ms) for n in range(number)]


def windows(events: Iterable[Row], size_ms: int, slide_ms: int | None = None) -> dict[tuple[int, str], list[int]]:
    """(start, key) -> numbers of the events, by start."""
    found: dict[tuple[int, str], list[int]] = defaultdict(list)
    slide = slide_ms or size_ms
    for number, key, at in events:
        for start in range(at - at % slide, at - size_ms, -slide):
            found[start, key].append(number)
    return dict(sorted(found.items()))


def text(at_ms: int, form: str, zone: str = "UTC") -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).astimezone(ZoneInfo(zone)).strftime(form)


def iso(at_ms: int) -> str:
    return text(at_ms, "%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1_000:03}Z"


def counted(topics: tuple[str, str], events: list[Record], results: Callable[[int], Iterable[Record]]) -> Shape:
    """``results``: with how many events too few in one window -> the results."""
    given, out = topics
    return Shape({given: log(events)}, {out: log(results(0))}, {out: log(results(1))})


def copied(topics: tuple[str, str], events: list[Record], results: list[Record], **others: Any) -> Shape:
    """One result per event, of which the loss takes one away."""
    given, out = topics
    half = len(results) // 2
    return Shape({given: log(events)}, {out: log(results)}, {out: log(results[:half] + results[half + 1 :])}, **others)


def updates(events: Iterable[Row], size_ms: int, less: int) -> Iterable[tuple[tuple[int, str], int, int]]:
    """(window, its number of events so far, time) for each event; the last window of the first key misses ``less``."""
    seen: Counter[tuple[int, str]] = Counter()
    events = list(events)
    lost = events[-len({key for _, key, _ in events})]
    for row in events:
        if less and row == lost:
            continue
        cell = row[2] - row[2] % size_ms, row[1]
        seen[cell] += 1
        yield cell, seen[cell], row[2]


@shape
def flink_click_count() -> Shape:
    def said(at: int) -> str:
        return text(at, "%d-%m-%Y %I:%M:%S:") + f"{at % 1_000:03}"

    events = rows(360, 250)
    cells = windows(events, 15_000)

    def results(less: int) -> Iterable[Record]:
        for number, ((start, key), ids) in enumerate(cells.items()):
            ends = {"windowStart": said(start), "windowEnd": said(start + 15_000)}
            yield one({**ends, "page": key, "count": len(ids) - less * (number == 4)})

    return counted(("input", "output"), [one({"timestamp": said(at), "page": key}) for _, key, at in events], results)


@shape
def flink_sql_upsert() -> Shape:
    form = "%Y-%m-%d %H:%M:%S"
    events = rows(240, 1_700, ("EUR", "USD"))

    def results(less: int) -> Iterable[Record]:
        for number, ((start, key), ids) in enumerate(windows(events, 60_000).items()):
            named = {"currency": key, "window_start": text(start, form)}
            ends = {"window_end": text(start + 60_000, form), "orders": len(ids) - less * (number == 3)}
            yield one({**named, **ends}, named)

    given = [
        one({"order_id": f"o-{n}", "currency": key, "order_time": text(at, f"{form}.{at % 1_000:03}")})
        for n, key, at in events
    ]
    return counted(("orders", "currency_counts"), given, results)


@shape
def flink_sql_hop() -> Shape:
    form = "%Y-%m-%d %H:%M:%S"
    events = rows(200, 11_000, ("A", "B", "C"))

    def results(less: int) -> Iterable[Record]:
        for number, ((start, key), ids) in enumerate(windows(events, 600_000, 120_000).items()):
            ends = {"window_start": text(start, form), "window_end": text(start + 600_000, form)}
            yield one({"item": key, **ends, "bids": len(ids) - less * (number == 20)})

    given = [one({"item": key, "price": 4.5, "bidtime": text(at, f"{form}.000")}) for _, key, at in events]
    return counted(("bids", "bid_counts"), given, results)


@shape
def flink_deduplication() -> Shape:
    events = [
        one({"eventId": f"e{n:04x}", "deviceId": key, "createdAt": iso(at), "value": n % 7 + 0.5})
        for n, key, at in rows(90, 900, ("d-1", "d-2"))
    ]
    sent = [copy for n, event in enumerate(events) for copy in [event] * (2 if n % 9 == 4 else 1)]
    return copied(("telemetry", "telemetry-clean"), sent, events)


@shape
def debezium_flink() -> Shape:
    given, results = [], []
    for n, _, at in rows(60, 1_300):
        op, row = "cud"[n % 3], {"id": n // 3, "name": f"n{n}"}
        after, before = (None if op == "d" else row), (None if op == "c" else row)
        change = {"before": before, "after": after, "op": op, "ts_ms": at, "source": {"lsn": 3_301 + 8 * n}}
        given.append(one(change, {"id": n // 3}))
        given += [one(None, {"id": n // 3})] if op == "d" else []
        results.append(one({"customer": n // 3, "op": op, "lsn": 3_301 + 8 * n, "changed_at": at}))
    return copied(("shop.public.customers", "customer-audit"), given, results)


@shape
def flink_sql_table() -> Shape:
    def change(before: Any, after: Any, at: int) -> dict[str, Any]:
        op = "c" if before is None else "d" if after is None else "u"
        return {"before": before, "after": after, "op": op, "ts_ms": at}

    return _of_table(change)


def _of_table(change: Callable[[Any, Any, int], dict[str, Any]]) -> Shape:
    """Counts and sums per status of the rows of a table. ``change``: of the row before it, that after it and a time."""
    statuses = ("new", "paid", "sent", "paid again")
    versions = [[{"id": n, "status": status, "amount": 7 * n + 3} for status in statuses] for n in range(40)]
    kept = [of[: 2 + n % 3] for n, of in enumerate(versions)]
    changes: list[tuple[Any, Any, int]] = []
    for number in range(5):
        for n, of in enumerate(kept):
            before, after = (of[at] if 0 <= at < len(of) else None for at in (number - 1, number))
            if after is not None or (before is not None and n % 10 == 9):
                changes.append((before, after, START_MS + 1_300 * len(changes)))

    lost = max(at for at, (_, row, _) in enumerate(changes) if row is not None and row["id"] % 10 != 9)

    def results(less: int) -> Iterable[Record]:
        known: dict[str, dict[int, int]] = {status: {} for status in statuses}
        for number, (before, after, at) in enumerate(changes):
            for row, is_kept in ((before, False), (after, not (less and number == lost))):
                if row is None:
                    continue
                of = known[row["status"]]
                of |= {row["id"]: row["amount"]} if is_kept else {}
                if row is before:
                    of.pop(row["id"], None)
                said = {"status": row["status"], "orders": len(of), "total": sum(of.values())}
                yield one(said if of else None, {"status": row["status"]}, at)

    given = []
    for before, after, at in changes:
        key = {"id": (after or before)["id"]}
        given.append(one(change(before, after, at), key))
        given += [one(None, key)] if after is None else []
    return counted(("shop.public.orders", "orders_per_status"), given, results)


def _views() -> tuple[list[Row], list[Record]]:
    events = rows(240, 1_900)
    return events, [one({"user": n % 17}, key, at) for n, key, at in events]


def _windowed(key: bytes, start_ms: int) -> bytes:
    return key + struct.pack(">q", start_ms)


@shape
def kafka_streams_suppressed() -> Shape:
    events, given = _views()

    def results(less: int) -> Iterable[Record]:
        for number, ((start, key), ids) in enumerate(windows(events, 60_000).items()):
            count = len(ids) - less * (number == 3)
            yield one(struct.pack(">q", count), _windowed(key.encode(), start), start + 70_000)

    return counted(("page-views", "view-counts"), given, results)


@shape
def kafka_streams_windowed() -> Shape:
    events, given = _views()

    def results(less: int) -> Iterable[Record]:
        for (start, key), count, at in updates(events, 60_000, less):
            yield one(struct.pack(">q", count), _windowed(key.encode(), start), at)

    return counted(("page-views", "view-counts"), given, results)


@shape
def kafka_streams_count() -> Shape:
    events, given = _views()

    def results(less: int) -> Iterable[Record]:
        seen: Counter[str] = Counter()
        for number, key, at in events:
            seen[key] += not (less and number == 100)
            yield one(struct.pack(">q", seen[key]), key, at)

    return counted(("page-views", "view-totals"), given, results)


@shape
def kafka_streams_word_count() -> Shape:
    lines = ["all streams lead to kafka", "hello kafka streams", "join kafka summit", "Kafka kafka KAFKA"] * 12
    words = [word for line in lines for word in line.lower().split(" ")]

    def results(less: int) -> Iterable[Record]:
        seen: Counter[str] = Counter()
        for number, word in enumerate(words):
            seen[word] += not (less and number == 100)
            yield one(struct.pack(">q", seen[word]), word)

    given = [one(line, None, START_MS + n * 1_900) for n, line in enumerate(lines)]
    return counted(("streams-plaintext-input", "streams-wordcount-output"), given, results)


@shape
def kafka_streams_filter() -> Shape:
    authors = ("Kafka, Franz", "Woolf, Virginia")
    given = [one({"name": authors[n % 2], "title": f"Title {n // 2}"}, None, at) for n, _, at in rows(80, 1_100)]
    kept = [record for n, record in enumerate(given) if n % 2 == 0]
    return copied(("publications", "filtered-publications"), given, kept)


@shape
def ksqldb_windowed() -> Shape:
    events = rows(200, 1_900, ("17", "18", "19"))
    given = [one({"userid": int(key), "ip": "10.0.0.1", "time": at}) for _, key, at in events]

    def results(less: int) -> Iterable[Record]:
        for (start, key), count, at in updates(events, 60_000, less):
            yield one({"EVENTS": count}, _windowed(struct.pack(">i", int(key)), start), at)

    return counted(("clickstream", "EVENTS_PER_MIN"), given, results)


@shape
def spark_update() -> Shape:
    events = rows(240, 1_900)
    given = [one({"page": key, "timestamp": iso(at)}) for _, key, at in events]

    def results(less: int) -> Iterable[Record]:
        found = list(updates(events, 60_000, less))
        for batch in (found[at : at + 10] for at in range(0, len(found), 10)):
            # A batch writes the windows that changed.
            for (start, key), count in {cell: count for cell, count, _ in batch}.items():
                yield one({"window": {"start": iso(start), "end": iso(start + 60_000)}, "page": key, "count": count})

    return counted(("clicks", "counts"), given, results)


@shape
def dead_letter() -> Shape:
    given = [one({"id": f"o-{n}", "customer": int(key), "placed_at": at}) for n, key, at in rows(80, 700, ("4", "5"))]
    bad = {11, 40}
    given[40] = one(b'{"id": "o-40", ', None, START_MS)
    results = [
        one({**json.loads(record.value or b""), "checked": True}) for n, record in enumerate(given) if n not in bad
    ]
    prefix = "kafka_dlt-original-"
    letters = [
        given[n]._replace(
            headers=(
                (f"{prefix}topic", b"orders"),
                (f"{prefix}partition", struct.pack(">i", 0)),
                (f"{prefix}offset", struct.pack(">q", n)),
            )
        )
        for n in sorted(bad)
    ]
    return copied(("orders", "valid-orders"), given, results, rejected={"orders-dlt": log(letters)})


def encoded(schema_id: int, schema: Any, value: Any) -> bytes:
    """Avro by the other implementation, after Confluent's wire prefix."""
    out = io.BytesIO()
    out.write(struct.pack(">bi", 0, schema_id))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


ORDER: Final = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "customerId", "type": "long"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["CREATED", "VALIDATED"]}},
        {"name": "createdAt", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
VALIDATION: Final = {
    "type": "record",
    "name": "OrderValidation",
    "fields": [
        {"name": "orderId", "type": "string"},
        {"name": "customerId", "type": "long"},
        {"name": "validationResult", "type": {"type": "enum", "name": "Outcome", "symbols": ["PASS", "FAIL"]}},
        {"name": "orderCreatedAt", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


@shape
def avro_service() -> Shape:
    events = rows(70, 800, ("15", "16", "17"))
    given = [
        one(encoded(7, ORDER, {"id": f"o-{n}", "customerId": int(key), "state": "CREATED", "createdAt": at}))
        for n, key, at in events
    ]
    results = [
        one(
            encoded(
                8,
                VALIDATION,
                {"orderId": f"o-{n}", "customerId": int(key), "validationResult": "PASS", "orderCreatedAt": at},
            )
        )
        for n, key, at in events
    ]
    schemas: Schemas = {
        7: RegisteredSchema("AVRO", json.dumps(ORDER)),
        8: RegisteredSchema("AVRO", json.dumps(VALIDATION)),
    }
    return copied(("orders", "order-validations"), given, results, schemas=schemas)


@shape
def connect_table() -> Shape:
    orders = [{"id": n, "shop": key, "placed_at": at} for n, key, at in rows(70, 800, ("ulm", "jena"))]
    schema = {"type": "struct", "optional": False, "fields": [{"type": "int64", "optional": False, "field": "id"}]}
    given = [one({"schema": schema, "payload": order}, {"schema": None, "payload": order["id"]}) for order in orders]
    results = [
        one(
            {"before": None, "after": order, "op": "c", "source": {"lsn": 90 + n}, "ts_ms": START_MS},
            {"id": order["id"]},
        )
        for n, order in enumerate(orders)
    ]
    return copied(("orders", "warehouse.public.orders"), given, results)


@shape
def mirror_maker() -> Shape:
    given = [
        one({"item": "ABC"[n % 3], "total": n % 5}, None if n % 20 == 7 else key, at, [("trace", b"%d" % n)])
        for n, key, at in rows(90, 600, ("c-4", "c-5"))
    ]
    return copied(("orders", "west.orders"), given, given)


@shape
def nexmark_q8() -> Shape:
    """A third of the persons open auctions in the window of their registration, a third later, and a third never."""

    def said(at: int) -> str:
        return text(at, "%Y-%m-%d %H:%M:%S.") + f"{at % 1_000:03}"

    registered = [(1_000 + n, at, f"Kate {n % 7}") for n, _, at in rows(90, 700)]
    opened = [(person, at + later) for person, at, _ in registered for later in ((200, 250), (12_000,), ())[person % 3]]
    opened.sort(key=lambda it: it[1])
    of = {(person, at - at % 10_000) for person, at in opened}
    persons = [
        one({"id": n, "name": name, "state": "OR", "dateTime": said(at)}, None, at) for n, at, name in registered
    ]
    auctions = [
        one({"id": 1_000 + n, "itemName": f"item-{n}", "seller": person, "dateTime": said(at)}, None, at)
        for n, (person, at) in enumerate(opened)
    ]
    results = [
        one({"id": n, "name": name, "stime": text(at - at % 10_000, "%Y-%m-%d %H:%M:%S")})
        for n, at, name in registered
        if (n, at - at % 10_000) in of
    ]
    found = copied(("person", "q8"), persons, results)
    return replace(found, inputs={**found.inputs, "auction": log(auctions)})


GALLERY: Final = tuple(SHAPES)
"""The names above: each is the name of a configuration."""


def listed(
    events: Sequence[Row],
    event: Callable[[Row], Record],
    size_ms: int,
    result: Callable[[int, str, list[int]], Record],
    slide_ms: int | None = None,
) -> Shape:
    """Windows whose results list the ids of their events."""
    cells = list(windows(events, size_ms, slide_ms).items())
    middle = len(cells) // 2

    def results(less: int) -> list[Record]:
        return log(
            result(start, key, ids[: len(ids) - less * (number == middle)])
            for number, ((start, key), ids) in enumerate(cells)
        )

    return Shape({"in": log(map(event, events))}, {"out": results(0)}, {"out": results(1)})


def click(row: Row) -> Record:
    return one({"id": row[0] + 1, "page": row[1], "timestamp": timestamp_text(row[2]).decode()})


def page_statistics(start: int, key: str, ids: Sequence[int | str]) -> Record:
    return one(result_bytes(Result(start, start + 60_000, (key,), tuple(ids), ()), "update/"), json.dumps(key))


@shape
def sst() -> Shape:
    """PGVal's single-source workload, which begins in 1970, and its late topic."""
    events = [(n, key, at - START_MS + 1) for n, key, at in rows(300, 1_000)]
    late = [row for row in events if row[0] % 60 == 59]
    found = listed(
        [row for row in events if row not in late],
        click,
        60_000,
        lambda start, key, ids: page_statistics(start, key, [n + 1 for n in ids]),
    )
    aside = [one(late_bytes(LateEvent((key,), n + 1, at))) for n, key, at in late]
    return replace(found, inputs={"click": log(map(click, events))}, late={"lateOutput": log(aside)})


@shape
def mst() -> Shape:
    """PGVal's join of clicks and updates of a page, whose ids overlap."""
    clicks, changes = rows(300, 1_000), rows(40, 7_300, ("/index", "/shop", "/help"))
    of_clicks, of_changes = windows(clicks, 60_000), windows(changes, 60_000)
    both = [cell for cell in of_clicks if cell in of_changes]

    def results(less: int) -> list[Record]:
        found = []
        for number, cell in enumerate(both):
            ids = [n + 1 for n in of_clicks[cell]][less * (number == 4) :]
            found.append(page_statistics(*cell, [*ids, *(f"update/{n + 1}" for n in of_changes[cell])]))
        return log(found)

    given = {"click": log(map(click, clicks)), "update": log(map(click, changes))}
    return Shape(given, {"out": results(0)}, {"out": results(1)})


@shape
def sliding_ids() -> Shape:
    return listed(
        rows(120, 900),
        lambda row: one({"id": row[0], "k": row[1], "ts": row[2]}),
        20_000,
        lambda start, key, ids: one({"k": key, "ws": start, "ids": ids}),
        5_000,
    )


@shape
def days() -> Shape:
    return listed(
        rows(150, 3_600_000, ("shop",)),
        lambda row: one({"id": row[0], "k": row[1], "ts": row[2] // 1_000}),
        86_400_000,
        lambda start, key, ids: one({"k": key, "ws": start, "ids": ids}),
    )


def _days_of_copenhagen(first: datetime) -> Shape:
    """A week of windows that begin at midnight of Copenhagen."""
    begins = [round(datetime.timestamp(first.replace(day=first.day + n)) * 1_000) for n in range(8)]
    hours = range(begins[0], begins[-1], 3_600_000)
    cells = [[n for n, at in enumerate(hours) if begin <= at < end] for begin, end in pairwise(begins)]

    def results(less: int) -> list[Record]:
        return log(
            one({"k": "shop", "ws": begin, "ids": ids[: len(ids) - less * (number == 3)]})
            for number, (begin, ids) in enumerate(zip(begins, cells, strict=False))
        )

    given = log(one({"id": n, "k": "shop", "ts": at}) for n, at in enumerate(hours))
    return Shape({"in": given}, {"out": results(0)}, {"out": results(1)})


@shape
def days_of_a_zone() -> Shape:
    return _days_of_copenhagen(datetime(2026, 7, 6, tzinfo=ZoneInfo("Europe/Copenhagen")))


@shape
def days_over_a_change_of_clocks() -> Shape:
    """One of the days has 23 hours."""
    return _days_of_copenhagen(datetime(2026, 3, 24, tzinfo=ZoneInfo("Europe/Copenhagen")))


@shape
def absent_keys() -> Shape:
    """The pipeline skips events without a key."""
    events = rows(120, 1_000)
    some = [row for row in events if row[0] % 30 != 7]
    good = listed(
        some,
        lambda row: one({"id": row[0], "k": row[1], "ts": row[2]}),
        10_000,
        lambda start, key, ids: one({"k": key, "ws": start, "ids": ids}),
    )
    given = [one({"id": n, "k": key if (n, key, at) in some else None, "ts": at}) for n, key, at in events]
    return Shape({"in": log(given)}, good.outputs, good.lost)


@shape
def growing_lists() -> Shape:
    """Each result of a window has all of its ids so far."""
    events = rows(90, 1_000, ("w", "v"))

    def results(less: int) -> list[Record]:
        held: dict[tuple[int, str], list[int]] = defaultdict(list)
        found = []
        for n, key, at in events[: len(events) - less]:
            start = at - at % 15_000
            held[start, key].append(n)
            found.append(
                one({"word": key, "count": len(held[start, key]), "start": start, "ids": list(held[start, key])})
            )
        return log(found)

    given = [one({"id": n, "k": key, "ts": at}) for n, key, at in events]
    return Shape({"in": log(given)}, {"out": results(0)}, {"out": results(1)})


@shape
def sessions() -> Shape:
    """Bursts of five events of a user, then a pause; results name start and end as Flink does."""
    given, results = [], []
    for burst in range(12):
        for user in ("u", "v"):
            begin = START_MS + burst * 1_800_000 + (user == "v") * 400_000
            times = [begin + n * 60_000 for n in range(5)]
            ids = [burst * 10 + 5 * (user == "v") + n for n in range(5)]
            given += [one({"id": i, "user": user, "ts": at}) for i, at in zip(ids, times, strict=True)]
            results.append(one({"user": user, "start": begin, "end": times[-1] + 300_000, "ids": ids}))
    half = len(results) // 2
    content = json.loads(results[half].value or b"")
    short = one({**content, "ids": content["ids"][:2] + content["ids"][3:]})
    lost = log([*results[:half], short, *results[half + 1 :]])
    return Shape({"in": log(given)}, {"out": log(results)}, {"out": lost})


@shape
def running() -> Shape:
    """Updates of a running total that name their one event, without a time."""
    given = [one({"id": f"p-{n}", "account": key, "paid_at": at}) for n, key, at in rows(90, 1_000, ("a", "b"))]
    results = [
        one({"account": json.loads(it.value or b"")["account"], "last": f"p-{n}"}, None, START_MS + 5_000)
        for n, it in enumerate(given)
    ]
    return copied(("payments", "totals"), given, results)


@shape
def csv_lines() -> Shape:
    return listed(
        rows(120, 1_000),
        lambda row: one(f"{row[0]},{row[1]},{row[2]}"),
        10_000,
        lambda start, key, ids: one(f"{key},{start},{';'.join(map(str, ids))}"),
    )


@shape
def packed_maps() -> Shape:
    """MessagePack in values and keys."""

    def packed(value: Any, key: Any) -> Record:
        return one(msgpack.packb(value), msgpack.packb(key))

    return listed(
        rows(120, 1_000),
        lambda row: packed({"id": row[0], "ts": row[2]}, {"page": row[1]}),
        10_000,
        lambda start, key, ids: packed({"start": start, "ids": ids}, {"page": key}),
    )


@shape
def clock_of_the_session() -> Shape:
    """Flink SQL names windows by the clock of its session."""

    def result(start: int, key: str, ids: list[int]) -> Record:
        return one({"k": key, "window_start": text(start, "%Y-%m-%d %H:%M:%S", "Asia/Tokyo"), "ids": ids})

    return listed(rows(200, 1_000), lambda row: one({"id": row[0], "k": row[1], "ts": row[2]}), 60_000, result)


@shape
def counts_on_the_clock_of_the_session() -> Shape:
    """Flink SQL's `TUMBLE` over a `TIMESTAMP_LTZ`, without ids."""
    events = rows(240, 1_700, ("EUR", "USD"))

    def results(less: int) -> Iterable[Record]:
        for number, ((start, key), ids) in enumerate(windows(events, 60_000).items()):
            named = [text(at, "%Y-%m-%d %H:%M:%S", "Asia/Tokyo") for at in (start, start + 60_000)]
            stated = {"window_start": named[0], "window_end": named[1], "orders": len(ids) - less * (number == 3)}
            yield one({"currency": key, **stated})

    return counted(("in", "out"), [one({"currency": key, "ts": at}) for _, key, at in events], results)


@shape
def amounts() -> Shape:
    """Orders above a limit."""
    given = [one({"id": n, "k": key, "total": n * 37 % 100, "ts": at}) for n, key, at in rows(120, 700)]
    kept = [it for it in given if json.loads(it.value or b"")["total"] >= 50]
    return copied(("in", "out"), given, kept)


@shape
def windowed_text_keys() -> Shape:
    events, given = _views()

    def results(less: int) -> Iterable[Record]:
        for number, ((start, key), ids) in enumerate(windows(events, 60_000).items()):
            yield one(str(len(ids) - less * (number == 3)), f"[{key}@{start}/{start + 60_000}]", start + 70_000)

    return counted(("page-views", "view-counts"), given, results)


@shape
def sums() -> Shape:
    """Aggregates of a field beside the count."""
    events = rows(240, 700, ("EUR", "USD"))
    amounts_of = {n: 10 + n * 37 % 1_000 for n, _, _ in events}

    def results(less: int) -> Iterable[Record]:
        for number, ((start, key), ids) in enumerate(windows(events, 20_000).items()):
            used = [amounts_of[n] for n in ids[less * (number == 3) :]]
            stated = {"orders": len(used), "revenue": sum(used), "smallest": min(used), "mean": sum(used) / len(used)}
            yield one({"currency": key, "start": start, **stated})

    given = [one({"currency": key, "amount": amounts_of[n], "ts": at}) for n, key, at in events]
    return counted(("in", "out"), given, results)


@shape
def sums_without_a_count() -> Shape:
    events = rows(240, 700, ("EUR", "USD"))
    amounts_of = {n: 10 + n * 37 % 1_000 for n, _, _ in events}

    def results(less: int) -> Iterable[Record]:
        for number, ((start, key), ids) in enumerate(windows(events, 20_000).items()):
            used = [amounts_of[n] for n in ids[less * (number == 3) :]]
            yield one({"currency": key, "start": start, "largest": max(used), "revenue": sum(used)})

    given = [one({"currency": key, "amount": amounts_of[n], "ts": at}) for n, key, at in events]
    return counted(("in", "out"), given, results)


@shape
def sums_so_far() -> Shape:
    events = rows(90, 700, ("EUR", "USD", "GBP"))

    def results(less: int) -> Iterable[Record]:
        sums: Counter[str] = Counter()
        for n, key, _ in events:
            sums[key] += 0 if less and n == 40 else 10 + n * 37 % 1_000
            yield one({"revenue": sums[key]}, key)

    given = [one({"currency": key, "amount": 10 + n * 37 % 1_000, "ts": at}) for n, key, at in events]
    return counted(("in", "out"), given, results)


@shape
def count_and_least() -> Shape:
    """A count beside the least amount, which is that of one event."""
    events = rows(240, 700, ("EUR", "USD"))

    def results(less: int) -> Iterable[Record]:
        for number, ((start, key), ids) in enumerate(windows(events, 20_000).items()):
            least = min(10 + n * 37 % 1_000 for n in ids)
            yield one({"currency": key, "start": start, "orders": len(ids) - less * (number == 3), "least": least})

    given = [one({"currency": key, "amount": 10 + n * 37 % 1_000, "ts": at}) for n, key, at in events]
    return counted(("in", "out"), given, results)


def _by_page(size_ms: int, events: Sequence[Row], line: Callable[[Row], str]) -> Shape:
    def results(less: int) -> Iterable[Record]:
        for number, ((start, key), ids) in enumerate(windows(events, size_ms).items()):
            yield one({"page": key, "start": start, "hits": len(ids) - less * (number == 3)})

    return counted(("in", "out"), [one(line(row)) for row in events], results)


@shape
def access_log() -> Shape:
    """Apache's combined log, with commas in the last field."""

    def line(row: Row) -> str:
        at = text(row[2], "%d/%b/%Y:%H:%M:%S +0000")
        return f'10.0.0.{row[0] % 7} - - [{at}] "GET {row[1]} HTTP/1.1" 200 {row[0] * 37} "-" "Mozilla/5.0 (X11, en)"'

    return _by_page(60_000, rows(240, 2_000), line)


@shape
def log_lines() -> Shape:
    """A logger's lines, whose messages have any number of words."""

    def line(row: Row) -> str:
        at = text(row[2], "%Y-%m-%d %H:%M:%S") + f",{row[2] % 1_000:03}"
        return f"{at} {('INFO', 'WARN ')[row[0] % 2]} [{row[1]}] shop.Views - viewed{' again' * (row[0] % 5)}"

    return _by_page(30_000, rows(240, 1_700), line)


def _named(line: Callable[[Row], str]) -> Shape:
    """Lines of named values, and windows of 10 s with their ids."""
    return listed(
        rows(120, 1_000),
        lambda row: one(line(row)),
        10_000,
        lambda start, key, ids: one({"page": key, "start": start, "ids": ids}),
    )


@shape
def named_values() -> Shape:
    return _named(lambda row: f'ts={row[2]} level=info id={row[0]} page={row[1]} msg="page {row[0] % 3} viewed"')


@shape
def named_values_with_commas() -> Shape:
    return _named(lambda row: f"id={row[0]}, page={row[1]}, ts={row[2]}")


@shape
def long_delimiters() -> Shape:
    """Lines as in MovieLens."""
    events = rows(90, 1_000, ("17", "18"))
    given = [one(f"{n}::{key}::{at // 1_000}") for n, key, at in events]
    return copied(("in", "out"), given, [one({"rating": n, "user": key, "at": at}) for n, key, at in events])


@shape
def lines_as_they_are() -> Shape:
    """Lines that a relay copies: a pattern could cut them, and the whole line is the identity."""
    events = [(f"number {n} of {key}", key, at) for n, key, at in rows(80, 1_000)]
    given = [one(*event) for event in events]
    return copied(("in", "out"), given, [one({"line": line, "k": key}, None, at) for line, key, at in events])


@shape
def payments_of_orders() -> Shape:
    """A left join by distance: a payment may be 5 s before its order and 30 s after it. The order's id is the key."""
    orders = rows(90, 3_100, ("web",))
    paid = [(n, at + (-4_700, 29_500, 800)[n % 3]) for n, _, at in orders if n % 10 != 3]
    given = {
        "orders": log(one({"id": f"o-{n}", "placed_at": iso(at)}) for n, _, at in orders),
        "payments": log(
            one({"payment": 7_000 + n, "order": f"o-{n}", "paid_at": iso(at)})
            for n, at in sorted(paid, key=lambda it: it[1])
        ),
    }
    payments = {n: [7_000 + n] for n, _ in paid}
    results = [
        one({"orders": [f"o-{n}"], "payments": payments.get(n, []), "order": f"o-{n}", "placed_at": iso(at)})
        for n, _, at in orders
    ]
    return Shape(given, {"out": log(results)}, {"out": log(results[:40] + results[41:])})


@shape
def replies_that_are_not_at_once() -> Shape:
    """A join by distance: replies from 5 s to 20 s after a call of their line. Nearer ones have no result."""
    calls = rows(90, 4_100, ("ulm", "jena"))
    replies = [(500 + n, key, at + 1_300) for n, key, at in calls]
    pairs = [
        (call, reply, key, at)
        for call, key, at in calls
        for reply, of, then in replies
        if key == of and 5_000 <= then - at <= 20_000
    ]
    given = {
        "calls": log(one({"call": n, "line": key, "at": at}) for n, key, at in calls),
        "replies": log(one({"reply": n, "line": key, "at": at}) for n, key, at in replies),
    }
    results = [one({"calls": [a], "replies": [b], "line": key, "called_at": at}) for a, b, key, at in pairs]
    return Shape(given, {"out": log(results)}, {"out": log(results[:40] + results[41:])})


@shape
def sessions_by_their_last_event() -> Shape:
    """Sessions as Kafka Streams names them, of few users, so that all of them could also be in one long window each."""
    given, results = [], []
    for burst in range(8):
        begin = START_MS + burst * 1_800_000
        times = [begin + n * 150_000 for n in range(4)]
        given += [one({"id": 10 * burst + n, "k": "u", "ts": at}) for n, at in enumerate(times)]
        results.append({"k": "u", "ws": begin, "we": times[-1], "ids": [10 * burst + n for n in range(4)]})
    lost = [{**it, "ids": [id_ for id_ in it["ids"] if id_ != 41]} for it in results]
    return Shape({"in": log(given)}, {"out": log(map(one, results))}, {"out": log(map(one, lost))})


def backlogs(appended_ms: Callable[[int, int], int]) -> Shape:
    """Two partitions, of which results have the first one only. The events of the second one are two minutes older.
    ``appended_ms``: partition and number -> the time of the record."""
    events = rows(60, 1_000, ("a",))
    found = listed(
        events,
        lambda row: one({"id": row[0], "k": row[1], "ts": row[2]}),
        10_000,
        lambda start, key, ids: one({"k": key, "ws": start, "ids": ids}),
    )
    given = [
        one(
            {"id": n + 1_000 * partition, "k": key, "ts": at - 120_000 * partition}, None, appended_ms(partition, n)
        )._replace(partition=partition, offset=n)
        for partition in range(2)
        for n, key, at in events
    ]
    return replace(found, inputs={"in": given})


@shape
def ends_of_windows() -> Shape:
    """Results whose only time is the end of their window."""

    def result(start: int, key: str, ids: list[int]) -> Record:
        return one({"k": key, "until": start + 10_000, "ids": ids})

    return listed(rows(150, 700), lambda row: one({"id": row[0], "k": row[1], "ts": row[2]}), 10_000, result)


@shape
def ends_of_counted_windows() -> Shape:
    events = rows(240, 700, ("EUR", "USD"))

    def results(less: int) -> Iterable[Record]:
        for number, ((start, key), ids) in enumerate(windows(events, 20_000).items()):
            used = ids[less * (number == 3) :]
            yield one({"currency": key, "window_end": start + 20_000, "orders": len(used), "total": 3 * sum(used)})

    given = [one({"currency": key, "amount": 3 * n, "ts": at}) for n, key, at in events]
    return counted(("in", "out"), given, results)


def _changes(number: int, *, in_schema: bool = False) -> list[tuple[str, int, str, int, Record]]:
    """Debezium's changes of a table: operation, number in the log, shop, time and record."""
    found = []
    for n, key, at in rows(number, 900, ("ulm", "jena")):
        op, row = "cud"[n % 3], {"order": n // 3, "shop": key}
        change: dict[str, Any] = {"before": None if op == "c" else row, "after": None if op == "d" else row}
        change |= {"op": op, "ts_ms": at, "source": {"lsn": 3_301 + 8 * n}}
        value = {"schema": {"type": "struct"}, "payload": change} if in_schema else change
        found.append((op, 3_301 + 8 * n, key, at, one(value, {"order": n // 3})))
    return found


@shape
def changes_with_schema() -> Shape:
    """Each insertion and update of a table has a result, a deletion has none."""
    changes = _changes(120, in_schema=True)
    results = [one({"number": lsn, "shop": key, "at": at}) for op, lsn, key, at, _ in changes if op != "d"]
    return copied(("orders", "audit"), [record for *_, record in changes], results)


@shape
def counts_of_insertions() -> Shape:
    """Windows that count the inserted rows of a table."""
    changes = _changes(240)
    inserted = [(lsn, key, at) for op, lsn, key, at, _ in changes if op == "c"]

    def results(less: int) -> Iterable[Record]:
        for number, ((start, key), ids) in enumerate(windows(inserted, 20_000).items()):
            yield one({"shop": key, "start": start, "inserted": len(ids) - less * (number == 3)})

    return counted(("orders", "inserted"), [record for *_, record in changes], results)


def _of_insertions(change: Callable[[bool, dict[str, Any], int], dict[str, Any]]) -> Shape:
    """Insertions have a result, updates have none. ``change``: of a row, in seconds, whether it is an insertion."""
    given, results = [], []
    for n, key, at in rows(90, 1_300, ("ulm", "jena")):
        given.append(one(change(n % 2 == 0, {"id": n // 2, "shop": key, "placed": at // 1_000}, at // 1_000)))
        results += [one({"order": n // 2, "shop": key, "at": at // 1_000})] if n % 2 == 0 else []
    return copied(("t", "audit"), given, results)


@shape
def maxwell_changes() -> Shape:
    def change(is_new: bool, row: dict[str, Any], at: int) -> dict[str, Any]:
        return {"database": "d", "table": "t", "type": "insert" if is_new else "update", "ts": at, "data": row}

    return _of_insertions(change)


@shape
def canal_changes() -> Shape:
    def change(is_new: bool, row: dict[str, Any], at: int) -> dict[str, Any]:
        old = None if is_new else [{"shop": "aalen"}]
        about = {"database": "d", "table": "t", "pkNames": ["id"], "isDdl": False, "es": at * 1_000}
        return {**about, "type": "INSERT" if is_new else "UPDATE", "data": [row], "old": old}

    return _of_insertions(change)


def _changed(before: Any, after: Any) -> tuple[str, Any, Any]:
    """The operation of a change, its row, and the fields that an update changed."""
    if before is None or after is None:
        return ("insert", after, None) if before is None else ("delete", before, None)
    return "update", after, {name: was for name, was in before.items() if after[name] != was}


@shape
def maxwell_table() -> Shape:
    def change(before: Any, after: Any, at: int) -> dict[str, Any]:
        op, row, old = _changed(before, after)
        whole = {"database": "d", "table": "t", "type": op, "ts": at // 1_000, "data": row}
        return whole if old is None else {**whole, "old": old}

    return _of_table(change)


@shape
def canal_table() -> Shape:
    def change(before: Any, after: Any, at: int) -> dict[str, Any]:
        op, row, old = _changed(before, after)
        about = {"database": "d", "table": "t", "isDdl": False, "es": at, "ts": at + 30}
        return {**about, "type": op.upper(), "data": [row], "old": old and [old]}

    return _of_table(change)


@shape
def changelog_json() -> Shape:
    return _of_insertions(lambda is_new, row, _: {"data": row, "op": "+I" if is_new else "+U"})


@shape
def changes_as_results() -> Shape:
    """A running count of Flink SQL, whose updates are changes: each deletes the row before it."""
    given, results = [], []
    so_far: Counter[str] = Counter()
    for n, key, at in rows(120, 900, ("ulm", "jena", "bonn", "kiel")):
        given.append(one({"id": n, "shop": key, "ts": at}))
        if so_far[key]:
            results.append(one({"before": {"shop": key, "orders": so_far[key]}, "after": None, "op": "d"}))
        so_far[key] += 1
        results.append(one({"before": None, "after": {"shop": key, "orders": so_far[key]}, "op": "c"}))
    return Shape({"in": log(given)}, {"out": log(results)}, {"out": log(results[:-1])})
