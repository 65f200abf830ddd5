"""Writes the load of the benchmarks: a click stream and its correct results, as fast as possible or at a rate.

It replaces generator and engine, so that an engine's speed does not limit the measurement. The format is PGVal's
(docs/generator.md): ``pages`` pages, windows of 60 s of event time, ``per_window`` events per page and window. A `Load`
can change how ids, times and names are written.
``python -m bench.writer '{"servers": ..., ...}'`` prints one JSON line at the end.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from confluent_kafka import Producer

from bench.formats import event_cases

WINDOW_MS = 60_000
_DAY_MS: Final = 86_400_000
_64_BITS: Final = 2**64 - 1


@dataclass(frozen=True)
class Load:
    """What to write. ``rate_per_second`` 0: as fast as possible. Every ``drop_every``-th result lacks an id, every
    ``repeat_every``-th repeats one (0: none).

    ``uuids``: ids are texts of 36 characters. ``zoned``: event times are ISO 8601 with the offset +02:00.
    ``in_parts``: the id of an event is in the header `id`, its key in the record's key. ``escapes``: names of pages
    have escapes and characters other than ASCII. ``values``: events have an amount, and an id only with ``uuids``;
    results state number and sum. ``running``: each event has a result with the number of events of its page so far, and
    no others. ``format``: events are those of `bench.formats` in this format, and of the last day."""

    servers: str
    inputs: str
    outputs: str
    events: int
    pages: int = 6
    per_window: int = 5_000
    rate_per_second: int = 0
    drop_every: int = 0
    repeat_every: int = 0
    uuids: bool = False
    zoned: bool = False
    in_parts: bool = False
    escapes: bool = False
    values: bool = False
    running: bool = False
    format: str = ""


def write(load: Load) -> dict[str, float]:
    """Write the load; seconds, CPU seconds, and the numbers of events, cells, dropped ids and repeated ids."""
    producer = producer_of(load.servers)
    plain = [f'/págé-"{number}"' if load.escapes else f"/page-{number}" for number in range(load.pages)]
    quoted = [json.dumps(name, ensure_ascii=False) for name in plain]
    keys = plain if load.in_parts else quoted
    tails = [f'","page":{name},"creationTimestamp":"' for name in quoted]
    step = max(1, WINDOW_MS // load.per_window)
    encoded = event_cases()[load.format].written if load.format else None
    # Event times are the records' timestamps, which retention counts.
    first = (int(time.time()) * 1_000 - _DAY_MS) // WINDOW_MS * WINDOW_MS if encoded else 0
    began = time.monotonic()
    event, instant, window = 0, 0, 0
    opened: list[list[str]] = [[] for _ in quoted]
    so_far = [0] * len(quoted)
    dropped = repeated = cells = 0

    def close_window() -> None:
        nonlocal dropped, repeated, cells
        start, end = iso(first + window * WINDOW_MS), iso(first + (window + 1) * WINDOW_MS)
        for name, key, ids in zip(quoted, keys, opened, strict=True):
            if not ids:
                continue
            cells += 1
            reported = ids
            if load.drop_every and cells % load.drop_every == 0:
                reported, dropped = ids[1:], dropped + 1
            if load.repeat_every and cells % load.repeat_every == 0:
                reported, repeated = [*reported, reported[-1]], repeated + 1
            said = f'"clickIds":[{",".join(reported)}],"updateIds":[]'
            if load.values:
                said = f'"events":{len(reported)},"amount":{sum(map(int, reported))}'
            value = f'{{"page":{name},"windowStart":"{start}","windowEnd":"{end}",{said}}}'
            put(producer, load.outputs, value, key)
            ids.clear()

    while event < load.events:
        if instant // WINDOW_MS != window:
            close_window()
            window = instant // WINDOW_MS
        stamp = f"{iso(instant + 2 * 3_600_000)}+02:00" if load.zoned else iso(instant)
        for place, key in enumerate(keys):
            event += 1
            id_ = f'"{uuid(event)}"' if load.uuids else str(event)
            if not load.running:
                opened[place].append(str(event) if load.values else id_)
            if encoded:
                at = first + instant
                more = {"price": event % 1_000 / 8, "kind": "A", "note": None if event % 2 else "a note"}
                raw, own_key = encoded({"id": event, "page": plain[place], "at": at, **more})
                put(producer, load.inputs, raw, own_key or key, at_ms=at)
                continue
            value = f'{{"timestamp":"{stamp}{tails[place]}{stamp}"}}'
            headers: list[tuple[str, str | bytes | None]] | None = None
            if load.in_parts:
                headers = [("id", id_.strip('"'))]
            else:
                amount = f'"amount":{event},' if load.values else ""
                named = f'"id":{id_},' if load.uuids or not load.values else ""
                value = f"{{{amount}{named}{value[1:]}"
            put(producer, load.inputs, value, key, headers)
            if load.running:
                so_far[place] += 1
                put(producer, load.outputs, f'{{"page":{quoted[place]},"events":{so_far[place]}}}', key)
        instant += step
        if event % (load.pages * 50) == 0:
            producer.poll(0)
            if load.rate_per_second:
                ahead = event / load.rate_per_second - (time.monotonic() - began)
                if ahead > 0.002:
                    time.sleep(ahead)
    close_window()
    producer.flush()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": time.monotonic() - began,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "events": event,
        "cells": cells,
        "dropped": dropped,
        "repeated": repeated,
    }


def producer_of(servers: str) -> Producer:
    """Return the producer of the benchmarks' loads."""
    return Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": "lz4",
            "linger.ms": 50,
            "batch.size": 524_288,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
            "message.max.bytes": 4_000_000,
            "partitioner": "murmur2_random",
        }
    )


def put(
    producer: Producer,
    topic: str,
    value: str | bytes,
    key: str | bytes,
    headers: list[tuple[str, str | bytes | None]] | None = None,
    at_ms: int = 0,
) -> None:
    """Produce one record; wait while the producer's queue is full. ``at_ms``: its timestamp; 0: now."""
    while True:
        try:
            if headers is None:
                producer.produce(topic, value, key, timestamp=at_ms)
            else:
                producer.produce(topic, value, key, headers=headers)
        except BufferError:
            producer.poll(0.05)
        else:
            return


def uuid(number: int) -> str:
    """A text in the form of a UUID, different for each number."""
    high = number * 0x9E3779B97F4A7C15 & _64_BITS
    low = (high ^ high >> 29) * 0xBF58476D1CE4E5B9 & _64_BITS
    whole = f"{high:016x}{low:016x}"
    return f"{whole[:8]}-{whole[8:12]}-{whole[12:16]}-{whole[16:20]}-{whole[20:]}"


def iso(instant_ms: int) -> str:
    """PGVal's time stamp: ISO 8601, milliseconds, no zone."""
    whole = datetime.fromtimestamp(instant_ms // 1000, UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{instant_ms % 1000:03d}"


if __name__ == "__main__":
    print(json.dumps(write(Load(**json.loads(sys.argv[1])))), flush=True)
