"""Writes a click stream and its right answers, as fast as it can or at a rate: the load of the benchmarks.

It plays generator and engine at once, so that the engine's speed does not limit what is measured. PGVal's wire format
(docs/generator.md): ``pages`` pages, windows of 60 s of event time, ``per_window`` events a page and window.
``python -m bench.writer '{"servers": ..., ...}'`` prints one JSON line at the end.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from confluent_kafka import Producer

WINDOW_MS = 60_000


@dataclass(frozen=True)
class Load:
    """What to write. ``rate_per_second`` 0: as fast as possible. Every ``drop_every``-th and ``repeat_every``-th cell's
    result lacks an id, repeats one (0: none)."""

    servers: str
    inputs: str
    outputs: str
    events: int
    pages: int = 6
    per_window: int = 5_000
    rate_per_second: int = 0
    drop_every: int = 0
    repeat_every: int = 0


def write(load: Load) -> dict[str, float]:
    """Write the load; returns seconds, CPU seconds, and how many ids were dropped and repeated."""
    producer = Producer(
        {
            "bootstrap.servers": load.servers,
            "compression.type": "lz4",
            "linger.ms": 50,
            "batch.size": 524_288,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
            "message.max.bytes": 4_000_000,
            "partitioner": "murmur2_random",
        }
    )
    names = [f"/page-{number}" for number in range(load.pages)]
    keys = [json.dumps(name) for name in names]
    tails = [f'","page":"{name}","creationTimestamp":"' for name in names]
    step = max(1, WINDOW_MS // load.per_window)
    began = time.monotonic()
    event, instant, window = 0, 0, 0
    opened: list[list[int]] = [[] for _ in names]
    dropped = repeated = cells = 0

    def answer() -> None:
        nonlocal dropped, repeated, cells
        start, end = iso(window * WINDOW_MS), iso((window + 1) * WINDOW_MS)
        for name, key, ids in zip(names, keys, opened, strict=True):
            if not ids:
                continue
            cells += 1
            told = ids
            if load.drop_every and cells % load.drop_every == 0:
                told, dropped = ids[1:], dropped + 1
            if load.repeat_every and cells % load.repeat_every == 0:
                told, repeated = [*told, told[-1]], repeated + 1
            listed = ",".join(map(str, told))
            value = (
                f'{{"page":"{name}","windowStart":"{start}","windowEnd":"{end}","clickIds":[{listed}],"updateIds":[]}}'
            )
            put(producer, load.outputs, value, key)
            ids.clear()

    while event < load.events:
        if instant // WINDOW_MS != window:
            answer()
            window = instant // WINDOW_MS
        stamp = iso(instant)
        for place, key in enumerate(keys):
            event += 1
            put(producer, load.inputs, f'{{"id":{event},"timestamp":"{stamp}{tails[place]}{stamp}"}}', key)
            opened[place].append(event)
        instant += step
        if event % (load.pages * 50) == 0:
            producer.poll(0)
            if load.rate_per_second:
                ahead = event / load.rate_per_second - (time.monotonic() - began)
                if ahead > 0.002:
                    time.sleep(ahead)
    answer()
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


def put(producer: Producer, topic: str, value: str, key: str) -> None:
    """Produce one record, waiting where the queue is full."""
    while True:
        try:
            producer.produce(topic, value, key)
        except BufferError:
            producer.poll(0.05)
        else:
            return


def iso(instant_ms: int) -> str:
    """PGVal's time stamp: ISO 8601, milliseconds, no zone."""
    whole = datetime.fromtimestamp(instant_ms // 1000, UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{instant_ms % 1000:03d}"


if __name__ == "__main__":
    print(json.dumps(write(Load(**json.loads(sys.argv[1])))), flush=True)
