"""The cost of what results state about their events, on Flink SQL, Spark SQL and the Kafka Streams DSL: a count, sums
over ids, or the ids.

The engine reads a complete topic of `bench.writer` (Kafka Streams: one of the same ids as longs), and writes a result
for each page and minute. ``python -m bench.statements SERVERS EVENTS`` runs Spark's statements in one session, and
prints their figures as JSON.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from bench.measuring import cpu_seconds_of
from bench.writer import WINDOW_MS, Load, producer_of, put
from testbed.engines.flink_sql import FlinkSqlEngine, sink, source
from testbed.engines.kafka_streams import KafkaStreamsEngine
from testbed.engines.real import RealEngine, RealEngineSettings, Timeouts
from testbed.engines.spark_driver import kafka_jars

INPUT: Final = "click"
LONGS: Final = "ids"
"""The input of Kafka Streams."""
STREAMS: Final[Mapping[str, str]] = {"count": "counts", "sums": "digests", "ids": "lists"}
"""What a result states -> the operator of the test bed's job."""
FLINK: Final[Mapping[str, str]] = {
    "count": "COUNT(*) AS n",
    "sums": "COUNT(*) AS n, SUM(id) AS ids, SUM(id * id) AS squares",
    "ids": "ARRAY_AGG(id) AS order_ids",
}
SPARK: Final[Mapping[str, str]] = {
    "count": "count(*) AS n",
    "sums": "count(*) AS n, sum(CAST(id AS DECIMAL(20))) AS ids, "
    "sum(pmod(CAST(id AS DECIMAL(20)) * id, 18446744073709551616)) AS squares",
    "ids": "collect_list(id) AS order_ids",
}
"""What a result states -> the statement of docs/evidence.md."""
_COLUMNS: Final = {
    "count": "n BIGINT",
    "sums": "n BIGINT, ids BIGINT, squares BIGINT",
    "ids": "order_ids ARRAY<BIGINT>",
}
_IDS_AT_ONCE: Final = Load("", "", "", 0).per_window
"""Events of a result."""
_PAGES: Final = Load("", "", "", 0).pages
_WARM_UP: Final = 3
"""Flink: the first one of so many parts of the load is not measured, since the JVM still compiles."""
_SPARK_ROUNDS: Final = 2
"""Spark: rounds of all statements, of which the last one is measured."""
_SECONDS_MAX: Final = 900.0
_POLL_SECONDS: Final = 0.05
_READ_AT_ONCE: Final = 500


@dataclass(frozen=True)
class _Moment:
    """Results so far, and the time and the engine's CPU seconds at which they existed."""

    results: int
    at_seconds: float
    cpu_seconds: float


def of_flink(servers: str, states: str, events: int, folder: Path) -> dict[str, Any]:
    """Run a statement on one TaskManager."""
    settings = RealEngineSettings(
        bootstrap_servers=servers,
        input=INPUT,
        output=_output("flink", states),
        group=_output("flink", states),
        guarantee="at_least_once",  # results are visible at once
        timeouts=Timeouts(commit_interval_seconds=10),
    )
    event = "id BIGINT, page STRING, `timestamp` TIMESTAMP(3), WATERMARK FOR `timestamp` AS `timestamp`"
    query = (
        f"INSERT INTO totals SELECT page, window_start, {FLINK[states]} FROM TABLE(TUMBLE(TABLE orders, "
        "DESCRIPTOR(`timestamp`), INTERVAL '1' MINUTE)) GROUP BY page, window_start, window_end"
    )
    statements = [
        source("orders", event, settings),
        sink("totals", f"page STRING, window_start TIMESTAMP(3), {_COLUMNS[states]}", settings),
        query,
    ]
    spent = _spent(FlinkSqlEngine(settings, folder, statements), settings, events)
    return _row("flink", states, spent, _results(servers, settings.output))


def _spent(of: RealEngine, settings: RealEngineSettings, events: int) -> _Moment:
    """Run an engine over ``events``. Return what its first instance spent from the warm-up on."""
    closed = _PAGES * ((events - 1) // (_PAGES * _IDS_AT_ONCE))  # the last window stays open
    with of as engine:
        engine.start()
        engine.ready(_SECONDS_MAX)
        worker = engine.instances[0].pid
        assert worker is not None, "the instance is ready"
        servers = settings.bootstrap_servers
        warm, end = (_await(servers, settings.output, number, worker) for number in (closed // _WARM_UP, closed))
        engine.stop()
    measured = (end.results - warm.results) * _IDS_AT_ONCE
    return _Moment(measured, end.at_seconds - warm.at_seconds, end.cpu_seconds - warm.cpu_seconds)


class _Dsl(KafkaStreamsEngine):
    """A statement whose results are written when their window closes."""

    states = "count"

    def _options(self) -> dict[str, str]:
        given = {"job.operator": STREAMS[self.states], "job.suppress": "true", "job.grace.ms": "0"}
        return super()._options() | given


def write_longs(servers: str, events: int) -> None:
    """Write the ids of `bench.writer` as longs, with the time and the page of each as the record's."""
    producer = producer_of(servers)
    # Kafka refuses records from the future.
    midnight_ms = (int(time.time()) // 86_400 - 1) * 86_400_000
    for number in range(events):
        instant, page = divmod(number, _PAGES)
        at_ms = midnight_ms + instant * WINDOW_MS // _IDS_AT_ONCE
        put(producer, LONGS, struct.pack(">q", 1 + number), f"page-{page}", at_ms=at_ms)
    assert producer.flush(_SECONDS_MAX) == 0, "the load is written"


def of_kafka_streams(servers: str, states: str, events: int, folder: Path) -> dict[str, Any]:
    """Run a statement on one instance."""
    output = _output("kafka_streams", states)
    settings = RealEngineSettings(
        bootstrap_servers=servers,
        input=LONGS,
        output=output,
        late="ignored",
        group=output,
        window_ms=WINDOW_MS,
        parallelism=1,
        guarantee="at_least_once",
        timeouts=Timeouts(commit_interval_seconds=1),  # results are written at commits
    )
    engine = _Dsl(settings, folder)
    engine.states = states
    spent = _spent(engine, settings, events)
    return _row("kafka_streams", states, spent, _results(servers, output, named_by_key=True))


def of_spark(servers: str, events: int) -> list[dict[str, Any]]:
    """Run each statement as a batch query."""
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.jars", ",".join(map(str, kafka_jars()))).config("spark.sql.shuffle.partitions", "2")
    session = builder.config("spark.sql.session.timeZone", "UTC").config("spark.driver.memory", "2g").getOrCreate()
    kafka = {"kafka.bootstrap.servers": servers}
    clicks = session.read.format("kafka").options(**kafka, subscribe=INPUT).load()
    fields = "from_json(CAST(value AS STRING), 'id BIGINT, page STRING, timestamp TIMESTAMP') AS event"
    clicks.selectExpr(fields).select("event.*").createOrReplaceTempView("orders")
    rows = []
    for round_ in range(_SPARK_ROUNDS):
        for states, statement in SPARK.items():
            began, cpu = time.monotonic(), cpu_seconds_of(os.getpid())
            minute = "window(timestamp, '1 minute')"
            answers = session.sql(
                f"SELECT page, {minute}.start AS window_start, {statement} FROM orders GROUP BY page, {minute}"
            )
            written = answers.selectExpr("to_json(struct(*)) AS value").write.format("kafka")
            output = _output("spark", states) if round_ == _SPARK_ROUNDS - 1 else "warm-up"
            written.options(**kafka, topic=output).save()
            if output == "warm-up":
                continue
            spent = _Moment(events, time.monotonic() - began, cpu_seconds_of(os.getpid()) - cpu)
            rows.append(_row("spark", states, spent, _results(servers, output)))
    session.stop()
    return rows


def outputs() -> list[str]:
    """The topics of results, each of one partition."""
    engines = {"flink": FLINK, "spark": SPARK, "kafka_streams": STREAMS}
    return ["warm-up", *(_output(engine, states) for engine, some in engines.items() for states in some)]


def _output(engine: str, states: str) -> str:
    return f"{engine}-{states}"


def _row(engine: str, states: str, spent: _Moment, results: list[bytes]) -> dict[str, Any]:
    """The figures of a run. ``spent``: the events that were measured. Each result must be right."""
    for result in results:
        _check(json.loads(result))
    used = len(results) * _IDS_AT_ONCE
    return {
        "engine_and_evidence": f"{engine} {states}",
        "events": spent.results,
        "events_per_second": round(spent.results / spent.at_seconds),
        "cpu_seconds_per_million_events": round(spent.cpu_seconds / spent.results * 1e6, 2),
        "result_bytes_per_event": round(sum(map(len, results)) / used, 3),
        "load_average_1m": round(os.getloadavg()[0], 1),
    }


def _check(result: Mapping[str, Any]) -> None:
    """Assert that a result is right: the ids of a page and window are as far apart as there are pages."""
    minute = int(result["window_start"][14:16]) + 60 * int(result["window_start"][11:13])
    first = 1 + minute * _PAGES * _IDS_AT_ONCE + int(result["page"].rpartition("-")[2])
    ids = range(first, first + _PAGES * _IDS_AT_ONCE, _PAGES)
    owed = {"n": len(ids), "ids": sum(ids), "squares": sum(i * i for i in ids)}
    for name, number in owed.items():
        assert (result.get(name, number) - number) % 2**64 == 0, f"{name} of {result} is {number}"
    assert sorted(result.get("order_ids", ids)) == list(ids), "other ids"


def _consumer(servers: str) -> Consumer:
    return Consumer({"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False, "log_level": 0})


def _await(servers: str, topic: str, number: int, pid: int) -> _Moment:
    """Wait until a topic has so many records. ``pid``: the engine's process."""
    reader, deadline = _consumer(servers), time.monotonic() + _SECONDS_MAX
    try:
        while (found := _end(reader, topic)) < number:
            assert time.monotonic() < deadline, f"{topic} has {found} of {number} results"
            time.sleep(_POLL_SECONDS)
        return _Moment(found, time.monotonic(), cpu_seconds_of(pid))
    finally:
        reader.close()


def _end(reader: Consumer, topic: str) -> int:
    found = reader.get_watermark_offsets(TopicPartition(topic, 0), 30)
    assert found is not None, f"the broker does not say the end of {topic}"
    return int(found[1])


def _results(servers: str, topic: str, *, named_by_key: bool = False) -> list[bytes]:
    """The values of the results. ``named_by_key``: the record's key has page and window, which the value gets."""
    reader, deadline = _consumer(servers), time.monotonic() + _SECONDS_MAX
    try:
        end, found = _end(reader, topic), list[bytes]()
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while len(found) < end:
            assert time.monotonic() < deadline, f"{topic} was not read to its end"
            some = [message for message in reader.consume(_READ_AT_ONCE, 0.5) if not message.error()]
            found += [_with_cell(one) if named_by_key else one.value() or b"" for one in some]
        return found
    finally:
        reader.close()


def _with_cell(message: Message) -> bytes:
    key, value = message.key() or b"", message.value() or b""
    [start_ms] = struct.unpack(">q", key[-8:])
    start = datetime.fromtimestamp(start_ms / 1000, UTC).isoformat()
    given = json.loads(value) if value[:1] == b"{" else {"n": struct.unpack(">q", value)[0]}
    return json.dumps(given | {"page": key[:-8].decode(), "window_start": start}, separators=(",", ":")).encode()


if __name__ == "__main__":
    print(json.dumps(of_spark(sys.argv[1], int(sys.argv[2]))), flush=True)
