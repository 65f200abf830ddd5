"""Counts and sums of the rows of a table on a real broker: changes of Debezium, Maxwell and Canal, and an engine that
updates a row per status, loses a deletion and an update, and applies them later."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.integration.sidecar_fixtures import Pipeline
from tests.tiers import first_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ORDERS: Final = 30
PARTITIONS: Final = 2
STATUSES: Final = ("new", "paid", "sent")
Row = dict[str, Any]
Change = dict[str, Any]

SETTINGS: Final = (
    "oracle={kind: running_aggregate, values: {orders: count, total: sum(amount)}}",
    "late=[]",
)


def settings(pipeline: Pipeline, envelope: str) -> tuple[str, ...]:
    time = "{path: $envelope.ts, unit: s}" if envelope == "maxwell" else "{path: $envelope.ts_ms, unit: ms}"
    fields = f"fields: {{key: status, event_time: {time}}}"
    stated = "fields: {key: $key, values: {orders: n, total: total}}"
    return (
        *SETTINGS,
        f"inputs=[{{topic: {pipeline.input}, envelope: {envelope}, table: true, {fields}}}]",
        f"outputs=[{{topic: {pipeline.output}, evidence: values, emission: cumulative, {stated}}}]",
    )


def change(op: str, before: Row | None, after: Row | None, at: int) -> Change:
    """A change as Debezium writes it, with the time in seconds."""
    return {"before": before, "after": after, "source": {"table": "orders"}, "op": op, "ts_ms": 1_000 * at}


def changes() -> Iterator[tuple[int, Change]]:
    """The changes of all orders, each after the last one of its order."""
    for order in range(ORDERS):
        row = {"id": order, "status": STATUSES[0], "amount": f"{order}.{order % 7}0"}
        yield order, change("r" if order < 3 else "c", None, row, order)
        for number, of in enumerate(({"status": STATUSES[1]}, {"amount": None}), 1):
            if order % (2 * number) == 1:
                before, row = row, {**row, **of}
                yield order, change("u", before, row, order + number)
        if order % 6 == 3:
            yield order, change("d", row, None, order + 3)


def of_debezium(given: Sequence[Change]) -> Iterator[Change | None]:
    """These changes, and a null value after each deletion."""
    for one in given:
        yield from (one, *([None] if one["op"] == "d" else []))


def of_maxwell(given: Sequence[Change]) -> Iterator[Change]:
    """As Maxwell writes these changes: of the row before an update only what changed."""
    for one in given:
        old = {} if TYPES[one["op"]] != "update" else {"old": changed(one)}
        row = one["after"] or one["before"]
        yield {"table": "orders", "type": TYPES[one["op"]], "ts": one["ts_ms"] // 1_000, "data": row, **old}


def of_canal(given: Sequence[Change]) -> Iterator[Change]:
    """As Canal writes these changes: several of one type in a record."""
    for name, alike in groupby(given, lambda one: TYPES[one["op"]]):
        some = list(alike)
        old = list(map(changed, some)) if name == "update" else None
        rows = [one["after"] or one["before"] for one in some]
        yield {"isDdl": False, "type": name.upper(), "ts_ms": some[-1]["ts_ms"], "data": rows, "old": old}


def changed(one: Change) -> Row:
    """The fields of the row before an update that changed."""
    return {name: was for name, was in one["before"].items() if one["after"][name] != was}


TYPES: Final = {"r": "insert", "c": "insert", "u": "update", "d": "delete"}
WRITERS: Final[Mapping[str, Callable[[Sequence[Change]], Iterator[Change | None]]]] = {
    "debezium": of_debezium,
    "maxwell": of_maxwell,
    "canal": of_canal,
}


def fed(pipeline: Pipeline, envelope: str) -> None:
    """Write all changes."""
    pipeline.create(inputs=PARTITIONS, outputs=PARTITIONS)
    for partition in range(PARTITIONS):
        mine = [one for order, one in changes() if order % PARTITIONS == partition]
        values = [None if one is None else json.dumps(one) for one in WRITERS[envelope](mine)]
        pipeline.put(pipeline.input, *values, partition=partition)


def read(pipeline: Pipeline) -> Iterator[Change]:
    """All changes, in the order of a consumer of all partitions. Where a change has not the row before it, that is the
    newest row with its id."""
    known: dict[int, Row] = {}
    for value in consumed(pipeline):
        if "op" in value:
            yield value
        else:
            rows = value["data"] if isinstance(value["data"], list) else [value["data"]]
            for row in rows:
                is_left = value["type"].lower() != "delete"
                yield change("", known.get(row["id"]), row if is_left else None, 0)
                known[row["id"]] = row


def consumed(pipeline: Pipeline) -> Iterator[Change]:
    """All values of the input that are not null."""
    consumer = Consumer(
        {"bootstrap.servers": pipeline.servers, "group.id": "an-engine", "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition(pipeline.input, number, 0) for number in range(PARTITIONS)])
    left = sum(consumer.get_watermark_offsets(TopicPartition(pipeline.input, n))[1] for n in range(PARTITIONS))
    try:
        while left:
            for message in consumer.consume(left, 10):
                assert message.error() is None, message.error()
                left -= 1
                if (value := message.value()) is not None:
                    yield json.loads(value)
    finally:
        consumer.close()


def computed(pipeline: Pipeline, is_lost: Callable[[Change], bool] = lambda _: False) -> None:
    """Run an engine: `SELECT status, COUNT(*), SUM(amount) FROM orders GROUP BY status` into an upsert topic."""
    rows: dict[str, dict[int, Row]] = defaultdict(dict)
    for one in read(pipeline):
        if is_lost(one):
            continue
        touched = []
        for image, counts in (("before", False), ("after", True)):
            if (row := one[image]) is not None:
                touched.append(row["status"])
                if counts:
                    rows[row["status"]][row["id"]] = row
                else:
                    del rows[row["status"]][row["id"]]
        for status in touched:
            of = rows[status].values()
            amounts = [float(row["amount"]) for row in of if row["amount"] is not None]
            value = json.dumps({"n": len(of), "total": round(sum(amounts), 2) if amounts else None})
            pipeline.put(
                pipeline.output,
                value if of else None,
                key=status,
                partition=STATUSES.index(status) % PARTITIONS,
            )


def contributions() -> int:
    return sum((one["before"] is not None) + (one["after"] is not None) for _, one in changes())


@pytest.mark.parametrize("envelope", first_of(WRITERS))
def test_lost_changes_of_a_table_are_found_and_retracted_once_applied(pipeline: Pipeline, envelope: str) -> None:
    fed(pipeline, envelope)
    computed(pipeline)
    run = pipeline.once(*settings(pipeline, envelope), state="perfect")
    assert run.counts() == {"expected": contributions(), "processed": contributions()}
    assert run.verdicts == ("pass", "pass", "pass")
    assert run.report["inputs"]["undecodable"] == 0

    deleted = next(one for _, one in changes() if one["op"] == "d")
    updated = next(one for _, one in changes() if one["op"] == "u" and one["before"]["id"] != deleted["before"]["id"])
    lost = [deleted, updated, *(one for _, one in changes() if one["before"] == updated["after"])]
    images = [(one["before"], one["after"]) for one in lost]
    computed(pipeline, lambda one: (one["before"], one["after"]) in images)
    run = pipeline.once(*settings(pipeline, envelope))
    # `paid` has the deleted order and lacks the updated one, which `new` still has.
    assert run.counts() == {"expected": contributions(), "processed": contributions(), "duplicate": 1}
    # Which of these is lost and which one repeated is not known.
    assert run.verdicts == ("unknown", "unknown", "fail")
    found = json.loads((pipeline.state() / "violations.json").read_text())["violations"]
    assert {(one["class"], one["key"]) for one in found} == {("duplicate", "new"), ("wrong_value", "paid")}

    computed(pipeline)
    run = pipeline.once(*settings(pipeline, envelope))
    assert run.counts() == {"expected": contributions(), "processed": contributions()}
    assert run.verdicts == ("pass", "pass", "pass")


def test_rows_that_records_of_their_key_replace(pipeline: Pipeline) -> None:
    """A compacted topic with a record for each row, as of upsert-kafka: aborted transactions leave gaps, as compaction
    does. The sidecar reads it in three runs."""
    compacted = {"cleanup.policy": "compact"}
    pipeline.broker.create_topics({pipeline.input: PARTITIONS}, compacted)
    pipeline.broker.create_topics({pipeline.output: PARTITIONS, pipeline.late: 1}, None)
    stated = "fields: {key: $key, values: {orders: n, total: total}}"
    fields = "fields: {key: status, event_time: $timestamp}"
    given = (
        *SETTINGS,
        f"inputs=[{{topic: {pipeline.input}, table: true, tombstone: delete, {fields}}}]",
        f"outputs=[{{topic: {pipeline.output}, evidence: values, emission: cumulative, {stated}}}]",
    )
    rows: dict[int, Row] = {}
    used: dict[int, Row] = {}

    def written(part: Sequence[tuple[int, Change]], lost: Sequence[Change] = ()) -> None:
        """Write some changes, and let an engine use them but for those that it loses."""
        producer = pipeline.transactional()
        for order, one in part:
            value = None if one["after"] is None else json.dumps(one["after"])
            for text, ends in ((value, producer.commit_transaction), ("never", producer.abort_transaction)):
                producer.begin_transaction()
                producer.produce(pipeline.input, text, f"order-{order}", order % PARTITIONS)
                ends(30)
            for of in (rows, *([] if one in lost else [used])):
                of.pop(order, None)
                of.update({} if one["after"] is None else {order: one["after"]})
        said(used)

    def said(used: Mapping[int, Row]) -> None:
        for number, status in enumerate(STATUSES):
            of = [row for row in used.values() if row["status"] == status]
            amounts = [float(row["amount"]) for row in of if row["amount"] is not None]
            value = json.dumps({"n": len(of), "total": round(sum(amounts), 2) if amounts else None})
            pipeline.put(pipeline.output, value if of else None, key=status, partition=number % PARTITIONS)

    every = sorted(changes(), key=lambda it: it[1]["ts_ms"])
    for part in (every[:20], every[20:40]):
        written(part)
        assert pipeline.once(*given).verdicts == ("pass", "pass", "pass")

    deleted = next(one for _, one in every[40:] if one["op"] == "d")
    updated = next(one for _, one in every[40:] if one["op"] == "u" and one["after"] != deleted["before"])
    written(every[40:], [deleted, updated])
    assert used != rows
    assert pipeline.once(*given).verdicts == ("unknown", "unknown", "fail")
    found = json.loads((pipeline.state() / "violations.json").read_text())["violations"]
    assert {one["key"] for one in found} == differing(used, rows)

    said(rows)
    run = pipeline.once(*given)
    assert run.verdicts == ("pass", "pass", "pass")
    assert run.report["inputs"]["undecodable"] == 0
    counts = run.counts("expected", "processed")
    assert counts["expected"] == counts["processed"] == contributions()


def differing(one: Mapping[int, Row], other: Mapping[int, Row]) -> set[str]:
    """The groups with other rows."""
    return {
        status
        for status in STATUSES
        if sorted(row["id"] for row in one.values() if row["status"] == status)
        != sorted(row["id"] for row in other.values() if row["status"] == status)
    }
