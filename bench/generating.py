"""The rate of the generator for each workload, beside a plain write of the same values.

``python -m bench.generating SERVERS TOPIC KIND EVENTS`` is one process of the plain write: it only produces values that
were rendered before, and waits until the broker has them. It prints the seconds.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from typing import Any, Final

from confluent_kafka import Producer

from generator import config
from generator.run import generate
from generator.sender import client_options
from generator.workloads.kinds import built, named
from testbed.broker import EmbeddedBroker

PROCESSES: Final = 2
_RENDERED: Final = 20_000
_EVENTS_MOST: Final = 1_000_000
_LONG: Final = {"shufflebench": 4}
"""Kind -> by what its number of events is divided, since they are long."""


def rates(events: int) -> list[dict[str, Any]]:
    """Events per second of two processes, and their ratio to a plain write by two processes, of at most `_EVENTS_MOST`
    events."""
    rate: dict[str, Any] = {"figure": "events per second"}
    ratio: dict[str, Any] = {"figure": "ratio to a plain write"}
    with EmbeddedBroker(heap_mb=1024) as broker:
        for kind in (kind for kind, one in built().items() if one.follows is None):
            number = min(events, _EVENTS_MOST) // _LONG.get(kind, 1)
            topics = [f"{kind}-{stream.name}" for stream in named(kind).streams]
            broker.create_topics(dict.fromkeys([*topics, f"{kind}-plain"], 3))
            summary = generate(_load(broker.bootstrap_servers, kind, topics, number))
            assert summary.acknowledged == summary.sends
            rate[kind] = round(summary.events_per_second)
            ratio[kind] = round(summary.events_per_second / _plain(broker.bootstrap_servers, kind, number), 2)
            print(kind, rate[kind], ratio[kind], flush=True)
    return [rate, ratio]


def _load(servers: str, kind: str, topics: list[str], events: int) -> config.GeneratorConfig:
    return config.parse(
        {
            "kafka": {"bootstrap_servers": servers}, "workload": kind, "topic": topics[0], "update_topic": topics[-1],
            "producers": PROCESSES, "processes": PROCESSES, "limit": {"events": events},
            **named(kind).settings(60_000, 5_000),
        }
    )  # fmt: skip


def _plain(servers: str, kind: str, events: int) -> float:
    """Events per second of the plain write."""
    command = [sys.executable, "-m", "bench.generating", servers, f"{kind}-plain", kind, str(events // PROCESSES)]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    return events / max(float(writer.communicate()[0]) for writer in writers)


def write(servers: str, topic: str, kind: str, events: int) -> float:
    """Produce values of the first stream, cycled. Return the seconds."""
    load = _load(servers, kind, [topic, f"{topic}-2"], events)
    of = load.workload
    batch = of.events(load.load(0, 0)).take(_RENDERED)[0]
    values = of.wire(of.streams[0], load.load(0, 0)).render(batch.numbers, batch.keys, batch.times_ms, 0)
    client = Producer(client_options(load))
    began = time.monotonic()
    for value in itertools.islice(itertools.cycle(values), events):
        while True:
            try:
                client.produce(topic, value)
                break
            except BufferError:
                client.poll(0.02)
    client.flush()
    return time.monotonic() - began


if __name__ == "__main__":
    print(write(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
