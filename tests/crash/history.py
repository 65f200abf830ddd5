"""A small history with every defect: clicks in ten-second windows, and an engine's results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from confluent_kafka import Producer

PAGES: Final = ("a", "b", "c")
EVENTS_PER_CELL: Final = 20
WINDOW_SECONDS: Final = 10
INPUT_PARTITIONS: Final = 2


@dataclass(frozen=True)
class Record:
    """A record to append."""

    topic: str
    value: str
    partition: int = 0


def clicks(name: str, windows: range) -> Iterator[Record]:
    """Yield every page's clicks in each of ``windows``, in order of their times."""
    for window in windows:
        for n in range(EVENTS_PER_CELL):
            for number, page in enumerate(PAGES):
                seconds = window * WINDOW_SECONDS + n * WINDOW_SECONDS / EVENTS_PER_CELL
                value = {"id": id_of(window, page, n), "page": page, "timestamp": _iso(seconds)}
                yield Record(f"{name}-in", json.dumps(value), number % INPUT_PARTITIONS)


def answers(name: str, windows: range) -> Iterator[Record]:
    """Yield the results of ``windows``. By window and page, a result is correct, lacks an id, is repeated in part,
    has an unknown or a misplaced id, or has one id on the late topic."""
    for window in windows:
        for page in PAGES:
            ids = [id_of(window, page, n) for n in range(EVENTS_PER_CELL)]
            defect = (window + PAGES.index(page)) % 7
            if defect == 1:
                ids = ids[1:]
            elif defect == 2:
                ids.append(900_000_000 + window)
            elif defect == 3:
                ids.append(id_of(window, PAGES[0] if page != PAGES[0] else PAGES[1], 3))
            elif defect == 4:
                value = {"clickId": ids.pop(), "page": page, "clickTimestamp": _iso(window * WINDOW_SECONDS + 9.5)}
                yield Record(f"{name}-late", json.dumps(value))
            yield _answer(name, window, page, ids)
            if defect == 5:
                yield _answer(name, window, page, ids[:5])


def id_of(window: int, page: str, n: int) -> int:
    """The id of the ``n``-th click of a cell."""
    return (window * len(PAGES) + PAGES.index(page)) * EVENTS_PER_CELL + n


def append(servers: str, records: Iterator[Record]) -> int:
    """Append all records; return their number once all are in the log."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    count = 0
    for record in records:
        producer.produce(
            record.topic,
            record.value,
            partition=record.partition,
            on_delivery=lambda error, _: failures.append(error) if error is not None else None,
        )
        count += 1
    assert producer.flush(30) == 0
    assert not failures, failures[:3]
    return count


def _answer(name: str, window: int, page: str, ids: list[int]) -> Record:
    value = {"page": page, "windowStart": _iso(window * WINDOW_SECONDS), "clickIds": ids}
    return Record(f"{name}-out", json.dumps(value))


def _iso(seconds: float) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds")
