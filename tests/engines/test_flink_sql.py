"""Statements of docs/evidence.md on Flink SQL, and upserts without ids, with a SIGKILL of a TaskManager on the way.

The test counts the orders of each customer (and window) itself, adds up their amounts, and compares both with the
results. Exactly once: they are equal. At least once: after the kill, results since the newest checkpoint are appended
again, and none is lost; upserts replace their repeats. The sidecar says the same.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from confluent_kafka import Producer

from testbed.broker import EmbeddedBroker
from testbed.engines.flink_sql import FlinkSqlEngine, sink, source
from testbed.engines.real import RealEngineSettings
from testbed.engines.settings import Guarantee
from tests.engines.judged import judged
from tests.engines.reading import messages
from tests.engines.topics import time_ms, until

pytestmark = [pytest.mark.full, pytest.mark.timeout(1100)]
PARTITIONS: Final = 2
CUSTOMERS: Final = [f"customer-{number}" for number in range(40)]
ROUNDS: Final = 60
ROUND_MS: Final = 20_000
START_MS: Final = 1_764_547_200_000
FIRST_ID: Final = 5_000_000_000_000
"""Squares of these ids exceed 64 bits."""
READY_SECONDS_MAX: Final = 180.0
ORDERS: Final = (
    "id BIGINT, customer STRING, amount BIGINT, placed_at TIMESTAMP(3), "
    "WATERMARK FOR placed_at AS placed_at - INTERVAL '1' MINUTE"
)
PAGE: Final = (Path(__file__).resolve().parents[2] / "docs" / "evidence.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The blocks of docs/evidence.md in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


LISTED: Final = blocks("sql")[0].strip()
DIGEST: Final = re.findall(r"^- \*\*Flink SQL\*\*: `([^`]*)`", PAGE, re.MULTILINE)[0]


@dataclass(frozen=True)
class Query:
    """A statement, its results, and what the sidecar reads of them. ``key``: results are upserted by it."""

    statement: str
    columns: str
    settings: dict[str, Any]
    key: tuple[str, ...] = ()

    @property
    def size_ms(self) -> int:
        """The size of the windows; 0 without windows."""
        return {"5m": 300_000, "1m": 60_000, None: 0}[self.settings["oracle"].get("size")]

    @property
    def once(self) -> bool:
        """Whether each result is written once, when its window closes."""
        return not self.key


def _asking(given: str, in_place: str) -> str:
    assert given in LISTED, "docs/evidence.md has another statement"
    return LISTED.replace(given, in_place)


def _without_ids(window: str, columns: str, key: tuple[str, ...], oracle: dict[str, Any]) -> Query:
    fields: dict[str, Any] = {"key": "customer", "values": {"n": "n", "total": "total"}}
    if "window_start" in key or not key:
        fields["window_start"] = "window_start"
    inputs = {"format": "json", "fields": {"key": "customer", "event_time": "placed_at"}}
    output = {"evidence": "values", "emission": "cumulative" if key else "final", "fields": fields}
    oracle |= {"values": {"n": "count", "total": "sum(amount)"}}
    return Query(window, columns, {"inputs": [inputs], "outputs": [output], "oracle": oracle}, key)


def _documented(number: int) -> dict[str, Any]:
    """The configuration ``number`` of the page, for Flink's texts as window starts."""
    given: dict[str, Any] = yaml.safe_load(blocks("yaml")[number])
    given["outputs"][0]["fields"]["window_start"] = "window_start"
    given.setdefault("inputs", [{"fields": {"id": "id", "key": "customer", "event_time": "placed_at"}}])
    return given


TUMBLE: Final = {"kind": "tumbling_window", "size": "5m"}
WINDOW: Final = "customer STRING, window_start TIMESTAMP(3)"
QUERIES: Final = {
    "listed": Query(LISTED, f"{WINDOW}, total BIGINT, order_ids ARRAY<BIGINT>", _documented(0)),
    "digest": Query(
        _asking("SUM(amount) AS total, ARRAY_AGG(id) AS order_ids", DIGEST),
        f"{WINDOW}, n BIGINT, ids BIGINT, squares BIGINT",
        _documented(1),
    ),
    "append": _without_ids(
        _asking("SUM(amount) AS total, ARRAY_AGG(id) AS order_ids", "COUNT(*) AS n, SUM(amount) AS total"),
        f"{WINDOW}, n BIGINT, total BIGINT",
        (),
        {**TUMBLE},
    ),
    "upsert": _without_ids(
        "SELECT customer, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY customer",
        "customer STRING, n BIGINT, total BIGINT",
        ("customer",),
        {"kind": "running_aggregate"},
    ),
    "upsert-windows": _without_ids(
        "SELECT customer, FLOOR(placed_at TO MINUTE) AS window_start, COUNT(*) AS n, SUM(amount) AS total "
        "FROM orders GROUP BY customer, FLOOR(placed_at TO MINUTE)",
        f"{WINDOW}, n BIGINT, total BIGINT",
        ("customer", "window_start"),
        {"kind": "tumbling_window", "size": "1m"},
    ),
}
Cell = tuple[str, int]


class Orders:
    """Topics, load and counts of one run, which has one input and an output for each query."""

    def __init__(self, broker: EmbeddedBroker, name: str, queries: Iterable[str]) -> None:
        self.servers, self.input = broker.bootstrap_servers, f"sql-{name}-orders"
        self.outputs = {query: f"sql-{name}-{query}" for query in queries}
        broker.create_topics(dict.fromkeys((self.input, *self.outputs.values()), PARTITIONS))
        self._next_ms, self._next_id, self._closed_ms = START_MS, FIRST_ID, 1 << 62
        self._producer = Producer({"bootstrap.servers": self.servers, "log_level": 0, "linger.ms": 5})

    def send(self, rounds: int) -> None:
        """Send orders of all customers, of some more often than of others."""
        for round_ in range(rounds):
            for number, customer in enumerate(CUSTOMERS):
                for _ in range(1 + (round_ + number) % 3):
                    self._order(customer)
            assert self._producer.flush(30) == 0
            self._next_ms += ROUND_MS
            time.sleep(0.1)

    def close(self) -> None:
        """Send a later order on each partition, so that the windows before it close."""
        self._next_ms += 3_600_000
        self._closed_ms = self._next_ms
        for partition in range(PARTITIONS):
            self._order("later", partition)
        assert self._producer.flush(30) == 0

    def _order(self, customer: str, partition: int = -1) -> None:
        placed_at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self._next_ms // 1000))
        amount = self._next_id % 97 - 10
        order = {"id": self._next_id, "customer": customer, "amount": amount, "placed_at": placed_at}
        self._producer.produce(self.input, json.dumps(order), customer, partition)
        self._next_id += 1

    def owed(self, name: str) -> dict[Cell, list[dict[str, Any]]]:
        """The orders of each customer and window; of windows with one result each, those that close."""
        query, found = QUERIES[name], defaultdict[Cell, list[dict[str, Any]]](list)
        for message in messages(self.servers, self.input):
            order = json.loads(message.value() or b"")
            at_ms = time_ms(order["placed_at"])
            if at_ms < self._closed_ms or not query.once:
                found[order["customer"], at_ms - at_ms % query.size_ms if query.size_ms else 0].append(order)
        return found

    def stated(self, name: str) -> dict[Cell, list[dict[str, Any]]]:
        """The results of each customer and window; of upserted ones the newest."""
        query, found = QUERIES[name], defaultdict[Cell, list[dict[str, Any]]](list)
        for message in messages(self.servers, self.outputs[name]):
            result = json.loads(message.value() or b"")
            of = found[result["customer"], time_ms(result["window_start"]) if query.size_ms else 0]
            if query.key:
                of.clear()
            of.append(result)
        return found

    def counts(self, name: str) -> tuple[int, int]:
        """How many orders the results lack, and count again. Without either, their values are those of the orders."""
        owed, stated = self.owed(name), self.stated(name)
        lacking = repeated = 0
        for cell in owed.keys() | stated.keys():
            orders, results = owed.get(cell, []), stated.get(cell, [])
            used = sum(result["n"] if "n" in result else len(result["order_ids"]) for result in results)
            surplus = used - len(orders)
            lacking, repeated = lacking + max(0, -surplus), repeated + max(0, surplus)
            if not surplus:
                _assert_same(orders, results)
        return lacking, repeated

    def lacking(self) -> dict[str, int]:
        """How many orders the results of each query lack, if any."""
        found = {name: self.counts(name)[0] for name in self.outputs}
        return {name: number for name, number in found.items() if number}

    def configuration(self, name: str, guarantee: Guarantee) -> dict[str, Any]:
        given = QUERIES[name].settings
        ((one,), (other,)) = given["inputs"], given["outputs"]
        return {
            **given,
            "pipeline": "orders",
            "guarantee": guarantee,
            "inputs": [{**one, "topic": self.input}],
            "outputs": [{**other, "topic": self.outputs[name]}],
            "timing": {"max_disorder": "1m"},
        }


def _assert_same(orders: list[dict[str, Any]], results: list[dict[str, Any]]) -> None:
    """Assert that results of as many orders state what the orders add up to."""
    numbers = [order["id"] for order in orders]
    owed = {
        "total": sum(order["amount"] for order in orders),
        "ids": sum(numbers),
        "squares": sum(i * i for i in numbers),
    }
    for name, number in owed.items():
        if name in results[0]:
            assert (sum(result[name] for result in results) - number) % 2**64 == 0, (name, orders, results)
    if "order_ids" in results[0]:
        assert sorted(i for result in results for i in result["order_ids"]) == numbers


@pytest.mark.parametrize(
    ("guarantee", "names"), [("exactly_once", tuple(QUERIES)), ("at_least_once", ("append", "upsert"))]
)
def test_the_sidecar_agrees_with_a_count_of_the_topics(
    broker: EmbeddedBroker, tmp_path: Path, guarantee: Guarantee, names: tuple[str, ...]
) -> None:
    run = Orders(broker, guarantee, names)
    settings = RealEngineSettings(
        input=run.input,
        output=run.outputs[names[0]],
        group=run.input,
        bootstrap_servers=run.servers,
        parallelism=2,
        guarantee=guarantee,
        options={"taskmanager.memory.managed.size": "160m"},
    )
    tables = {name: "to_" + name.replace("-", "_") for name in names}
    queries = " ".join(f"INSERT INTO {table} {QUERIES[name].statement};" for name, table in tables.items())
    statements = [
        source("orders", ORDERS, settings),
        *(
            sink(
                table,
                QUERIES[name].columns,
                settings.model_copy(update={"output": run.outputs[name], "group": run.outputs[name]}),
                key=QUERIES[name].key,
            )
            for name, table in tables.items()
        ),
        f"EXECUTE STATEMENT SET BEGIN {queries} END",
    ]
    with FlinkSqlEngine(settings, tmp_path / "engine", statements) as engine:
        engine.start()
        engine.ready(READY_SECONDS_MAX)
        effective = engine.effective()
        run.send(ROUNDS // 2)
        engine.kill(0)
        engine.restart(0)
        run.send(ROUNDS // 2)
        engine.ready(READY_SECONDS_MAX)
        run.close()
        until(lambda: not run.lacking(), READY_SECONDS_MAX, run.lacking)
        engine.stop()
    for name in names:
        lacking, repeated = run.counts(name)
        expected = {"duplicate": repeated, "missing": lacking}
        assert guarantee == "at_least_once" or not any(expected.values()), name
        given, once = run.configuration(name, guarantee), QUERIES[name].once
        status, report = judged(tmp_path / name, run.servers, given, effective, leaves_open=once)
        found = report["contributions"]
        assert {one: found[one] for one in expected} == expected, report
        assert status == 0, "the engine keeps its guarantee"
        assert found["processed"] == sum(map(len, run.owed(name).values()))
        assert report["verdicts"]["exactly_once"] == ("fail" if repeated else "pass"), report["reasons"]
