"""The stage that turns records into facts, against a twin that takes one record at a time. The facts of a cell add up
to the same for any division into tasks and batches.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.property.xxh64 import signed, terms
from tests.worlds import some
from validator.codecs.columns import DECODED, TOMBSTONE, UNDECODABLE, UNEXAMINED
from validator.codecs.fingerprints import hash_a, hash_b, text_numbers
from validator.codecs.one_record import Decoded, Event, OmittedPart, Record, Result, Tombstone, Undecodable, Unexamined
from validator.config.load import loads
from validator.config.model import Config
from validator.reconcile.facts import GROUPED, Side, completed
from validator.stream import stage as stage_module
from validator.stream.decode import Reader
from validator.stream.sources import readers_of, sources_of
from validator.stream.stage import Stage

pytestmark = [pytest.mark.property, pytest.mark.timeout(300)]

CONFIGS = {
    "one input": """
pipeline: stage
guarantee: exactly_once
kafka: {bootstrap_servers: "localhost:9092"}
inputs: [{topic: click, fields: {id: id, key: [page, shop], event_time: at}}]
outputs: [{topic: output, fields: {key: [page, shop], window_start: start, ids: [a, b]}}]
late: [{topic: tardy, fields: {id: id, key: [page, shop], event_time: at}}]
rejected: [{topic: dead, fields: {id: id, key: [page, shop], event_time: at,
            position: {topic: topic, partition: partition, offset: offset}}}]
oracle: {kind: tumbling_window, size: 10s, offset: 3s}
timing: {max_disorder: 4s, allowed_lateness: 9s}
limits: {id_bytes: 40, key_bytes: 30}
state: {path: /tmp/unused}
""",
    "a join, ids in headers": """
pipeline: stage
guarantee: exactly_once
kafka: {bootstrap_servers: "localhost:9092"}
inputs:
  - {topic: click, fields: {id: $header.id, key: $key, event_time: at}}
  - {topic: update, fields: {id: id, key: page, event_time: {path: ms, unit: ms}}}
outputs: [{topic: output, fields: {key: page, window_start: start,
           ids: [{path: a, input: click}, {path: b, input: update}]}}]
oracle: {kind: windowed_join, join: inner, left: click, right: update, size: 10s, closed: right}
limits: {id_bytes: 40, key_bytes: 30}
state: {path: /tmp/unused}
""",
}
LIMIT_US = 1_000_100_000_000
"""Events after this instant are too far ahead."""
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary()), ("size", pa.int32())]))


def one_id(chance: random.Random) -> int | str | None:
    number = chance.randrange(5_000)
    kinds: Sequence[int | str | None] = [
        number,
        str(number),
        f"{number:08x}-0000-4000-8000-{number:012x}",
        f"{number:08x}-0000-4000-8000-{number:012x}",
        "ä" * chance.randrange(20),
        -(2**63) + number % 3,
        2**63 - 1 - number % 3,
        2**63,
        "x" * 41,
        None,
    ]
    return chance.choice(kinds if chance.random() < 0.3 else kinds[:4])


def value_of(chance: random.Random, side: Side) -> bytes | None:
    if chance.random() < 0.06:
        return chance.choice([None, b"", b"{", b"[]", b'{"id": 1}'])
    ms = 1_000_000_000 + chance.randrange(60_000) + (10**9 if chance.random() < 0.02 else 0)
    of_window = 1_000_000_000 // 10_000 * 10_000 + 3_000 + chance.randrange(6) * 10_000
    zone = chance.choice(["", "Z", "+02:00"])
    fields: dict[str, Any] = {
        "page": chance.choice(["/a", "/b", "/ä\n", "", f"/{chance.randrange(40)}", "/" + "k" * 40, None]),
        "shop": chance.choice([1, "x", "1"]),
    }
    if side is Side.OUTPUT:
        lists = [[one_id(chance) for _ in range(chance.choice([0, 1, 1, 2, 9]))] for _ in range(2)]
        if chance.random() < 0.9:
            lists = [[id_ for id_ in ids if id_ is not None] for ids in lists]
        fields |= {"start": iso(of_window) + zone, "a": lists[0], "b": lists[1]}
    else:
        fields |= {"id": one_id(chance), "at": iso(ms) + zone, "ms": ms}
        if chance.random() < 0.05:
            fields |= {"at": "no time", "topic": "click", "partition": 1, "offset": chance.randrange(99)}
    return json.dumps(fields, ensure_ascii=chance.random() < 0.5).encode()


def iso(ms: int) -> str:
    return str(np.datetime64(ms, "ms"))


def records_of(chance: random.Random, config: Config, number: int) -> list[list[dict[str, Any]]]:
    """The records of each source, ordered by offset within a partition."""
    found = []
    for index, source in enumerate(sources_of(config)):
        rows = []
        for at in range(number):
            key = chance.choice([b"/a", b"/b", b"\xff", None, b"/" + b"k" * 40])
            id_ = chance.choice([b"7", b"u-7", b"\xff", b"x" * 41])
            rows.append(
                {
                    "source": index,
                    "value": value_of(chance, source.side),
                    "partition": chance.randrange(3),
                    # Transaction markers leave gaps.
                    "offset": 2 * at if chance.random() < 0.5 else 2 * at + 1,
                    "time_us": 10**15 + chance.randrange(10**6),
                    "key": None if key is not None and len(key) > 30 else key,
                    "key_size": None if key is None else len(key),
                    "headers": [{"key": "id", "value": id_ if len(id_) <= 40 else None, "size": len(id_)}],
                }
            )
        found.append(rows)
    return found


def batch_of(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    schema = pa.schema(
        [("source", pa.int32()), ("value", pa.binary()), ("partition", pa.int32()), ("offset", pa.int64()),
         ("time_us", pa.int64()), ("key", pa.binary()), ("key_size", pa.int32()), ("headers", HEADERS)]
    )  # fmt: skip
    return pa.RecordBatch.from_pylist(list(rows), schema)


def tasks_of(chance: random.Random, rows: list[dict[str, Any]]) -> Iterator[list[pa.RecordBatch]]:
    """Tasks like Spark's: each reads some records of one partition, in batches."""
    for partition in range(3):
        mine = [row for row in rows if row["partition"] == partition]
        while mine:
            size = chance.choice([1, 50, 400])
            task, mine = mine[:size], mine[size:]
            yield [batch_of(task[at : at + 150]) for at in range(0, len(task), 150)]


# The twin


def said(reader: Reader, row: dict[str, Any]) -> tuple[Record, Decoded | Tombstone | Undecodable]:
    key = row["key"] if row["key"] is not None or row["key_size"] is None else OmittedPart(row["key_size"])
    headers = [
        (it["key"], it["value"] if it["value"] is not None else OmittedPart(it["size"])) for it in row["headers"]
    ]
    record = Record(row["value"], key, headers, row["time_us"], row["partition"], row["offset"])
    return record, reader.decoder.decode(record)


def twin(readers: Sequence[Reader], sources: list[list[dict[str, Any]]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The facts of all records, by source, partition, status, window, key and reach."""
    facts: dict[tuple[Any, ...], dict[str, Any]] = defaultdict(
        lambda: {
            "records": 0, "contributions": 0, "hash_a": 0, "hash_b": 0, "offsets": [], "times": [], "events": [],
            "ids": [], "text_ids": [], "results": [],
        }
    )  # fmt: skip
    for source, rows in enumerate(sources):
        reader = readers[source]
        size_us, offset_us = reader.oracle.size, reader.oracle.offset
        for row in rows:
            record, found = said(reader, row)
            status, window, key, reach, ids, at = UNDECODABLE, None, None, None, [], row["offset"]
            event = None
            if isinstance(found, Event):
                status, key, event = DECODED, found.key, found.event_time_us
                is_right = reader.oracle.closed == "right"
                window = event - is_right - (event - is_right - offset_us) % size_us
                if event <= LIMIT_US:
                    past = event - reader.slack_us
                    reach = past - (past - offset_us) % size_us + is_right
                space = reader.batches.space  # type: ignore[union-attr]
                ids = [found.id if space is None else space.named(found.id)]
            elif isinstance(found, Result):
                status, key, window = DECODED, found.key, found.window_start_us
                spaces = reader.batches.spaces or [None] * len(found.ids)  # type: ignore[union-attr]
                ids = [
                    id_ if s is None else s.named(id_) for s, of in zip(spaces, found.ids, strict=True) for id_ in of
                ]
            elif isinstance(found, Tombstone):
                status = TOMBSTONE
            elif isinstance(found, Unexamined):
                what = "one of its ids" if found.field == "ids" else f"its {found.field or 'value'}"
                key = f"{what} {found.reason}"
                status = UNEXAMINED if hasattr(reader.batches, "spaces") else UNDECODABLE
            fact = facts[source, row["partition"], status, window, key, reach]
            fact["records"] += 1
            fact["contributions"] += len(ids)
            for id_ in ids:
                a, b = terms(id_)
                fact["hash_a"], fact["hash_b"] = signed(fact["hash_a"] + a), signed(fact["hash_b"] + b)
            fact["offsets"].append(at)
            fact["times"].append(row["time_us"])
            if event is not None:
                fact["events"].append((at, event))
            if isinstance(found, Result):
                numbers = [id_ for id_ in ids if isinstance(id_, int)]
                texts = [id_ for id_ in ids if isinstance(id_, str)]
                fact["results"].append((at, row["time_us"], numbers, texts))
            elif isinstance(found, Event):
                fact["ids" if isinstance(ids[0], int) else "text_ids"].append((at, ids[0]))
            elif reader.decoder.names_positions and (named := reader.decoder.named_position(record)) is not None:
                fact["text_ids"].append((at, named))
    return facts


def folded(facts: pa.Table) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The sums of fact rows, as their readers compute them."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    names = ("source", "partition", "status", "window_start_us", "key", "reach_us")
    for row in facts.to_pylist():
        cell = tuple(row[name] for name in names)
        one = found.setdefault(cell, dict.fromkeys(("records", "contributions", "hash_a", "hash_b"), 0))
        for name in ("records", "contributions", "hash_a", "hash_b"):
            one[name] = signed(one[name] + row[name])
        for name, best in (("first_offset", min), ("last_offset", max), ("first_time_us", min), ("last_time_us", max),
                           ("newest_event_time_us", max), ("min_id", min), ("max_id", max)):  # fmt: skip
            values = [value for value in (one.get(name), row[name]) if value is not None]
            one[name] = best(values) if values else None
        first = min(one.get("first_event", (2**63, None)), (row["first_offset"], row["first_event_time_us"]))
        one["first_event"] = first
        for name in ("ids", "text_ids"):
            one.setdefault(name, []).extend((item["offset"], item["id"]) for item in row[name])
        claims = [(it["offset"], it["time_us"], it["ids"], it["text_ids"]) for it in row["results"]]
        one.setdefault("results", []).extend(claims)
        # Expanded to offsets, since the division into tasks decides where a stretch ends.
        one.setdefault("bad", []).extend(
            offset for it in row["stretches"] or () for offset in range(it["first"], it["last"] + 1)
        )
        assert (row["stretches"] is not None) == (row["status"] == UNDECODABLE)
        assert sum(it["records"] for it in row["stretches"] or ()) in (0, row["records"])
    for one in found.values():
        for name in ("ids", "text_ids", "results", "bad"):
            one[name].sort()
    return found


def expected(fact: dict[str, Any], cell: tuple[Any, ...]) -> dict[str, Any]:
    numbers = [id_ for _, id_ in fact["ids"]]
    is_sane = cell[5] is not None
    offsets = fact["offsets"]
    return {
        **{name: fact[name] for name in ("records", "contributions", "hash_a", "hash_b")},
        **{name: sorted(fact[name]) for name in ("ids", "text_ids", "results")},
        "first_offset": min(offsets),
        "last_offset": max(offsets),
        "first_time_us": min(fact["times"]),
        "last_time_us": max(fact["times"]),
        "newest_event_time_us": max(time for _, time in fact["events"]) if is_sane else None,
        "first_event": (min(offsets), min(LIMIT_US, min(fact["events"])[1]) if fact["events"] else None),
        "min_id": min(numbers, default=None),
        "max_id": max(numbers, default=None),
        "bad": sorted(offsets) if cell[2] == UNDECODABLE else [],
    }


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("seed", some(range(3)))
def test_facts_of_a_batch_equal_the_sum_over_single_records(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(f"{name} {seed}")
    monkeypatch.setattr(stage_module, "_RECORDS_AT_ONCE", chance.choice([1, 100, 2**19]))
    config = loads(CONFIGS[name], "/etc", [], {})
    readers = readers_of(config, sources_of(config))
    sources = records_of(chance, config, 600)
    stage = Stage(readers, LIMIT_US, with_first_event=True)
    parts = []
    for number, rows in enumerate(sources):
        for task in tasks_of(chance, rows):
            given = list(stage.facts(number, iter(task)))
            assert given == list(stage.facts(number, iter(task))), "a task that is repeated gives the same"
            parts += given
    facts = pa.concat_tables(parts)
    assert facts.schema.equals(GROUPED)
    wanted = {cell: expected(fact, cell) for cell, fact in twin(readers, sources).items()}
    found = folded(facts)
    assert found.keys() == wanted.keys()
    for cell, fact in wanted.items():
        assert found[cell] == fact, cell
    named = [(source.side, source.topic) for source in sources_of(config)]
    assert completed(facts, named, batch=1, lookup_us=2, epoch=0).num_rows == facts.num_rows
    kinds = {cell[2] for cell in wanted}
    assert {DECODED, UNDECODABLE, TOMBSTONE, UNEXAMINED} <= kinds
    assert any(fact["text_ids"] and fact["ids"] for fact in wanted.values())
    assert any(cell[5] is None for cell in wanted if cell[2] == DECODED and cell[0] > 0), "too far ahead"


def test_the_first_event_is_omitted_if_no_horizon_needs_it() -> None:
    config = loads(CONFIGS["one input"], "/etc", [], {})
    sources = sources_of(config)
    rows = records_of(random.Random(1), config, 20)[-1]
    stage = Stage(readers_of(config, sources), LIMIT_US, with_first_event=False)
    (facts,) = stage.facts(len(sources) - 1, iter([batch_of(rows)]))
    assert facts["first_event_time_us"].null_count == facts.num_rows > 0


def test_an_empty_batch_has_no_facts() -> None:
    config = loads(CONFIGS["one input"], "/etc", [], {})
    stage = Stage(readers_of(config, sources_of(config)), LIMIT_US, with_first_event=False)
    assert list(stage.facts(0, iter([]))) == list(stage.facts(0, iter([batch_of([])]))) == []


def test_fingerprints_are_those_of_the_specification() -> None:
    chance = random.Random(5)
    texts = ["".join(chance.choices("aä中", k=chance.randrange(90))) for _ in range(2_000)]
    texts += ["", "x" * 4_096, "y" * 31, "y" * 32, "y" * 33]
    for part in (texts, [f"{number:036}" for number in range(40_000)][::39]):
        column = pa.array(["left out", *part]).slice(1)
        numbers = text_numbers(column)
        a, b = hash_a(numbers).tolist(), hash_b(numbers).tolist()
        assert list(zip(a, b, strict=True)) == [terms(text) for text in part]
    assert len(text_numbers(pa.array([], pa.string()))) == 0
