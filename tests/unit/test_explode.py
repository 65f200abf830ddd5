"""Events that count once for each word of their key."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.local_run import judged
from tests.unit.retained_run import START_US, InMemory, grouped
from validator.codecs.batches import EVENTS, RESULTS, exploded
from validator.codecs.columns import DECODED, TOMBSTONE, UNDECODABLE, UNOWED
from validator.codecs.one_record import Event, Record, RecordDecoder, Undecodable
from validator.config.examples import EXAMPLES
from validator.config.load import InvalidConfigError, loads
from validator.config.model import Input
from validator.model.classes import Verdict
from validator.oracles.running_aggregate import RunningAggregate
from validator.oracles.seam import Reads
from validator.oracles.sliding_window import SlidingWindow
from validator.reconcile.grouping import facts_of_events, facts_of_results
from validator.reconcile.judge import Rules
from validator.settings.explode import SEPARATORS, Explode
from validator.stream.stage import _cut

LINES = ["all streams lead", "Kafka kafka, KAFKA", "", " a\tb  a_1 a ", "a\x0bb\x0cc\u00a0d", "é-É", "\u0130stanbul"]
ORACLE = RunningAggregate.of(replaces=True).reading(
    Reads(replaces=True, evidence="values", names_ids=False, explodes=True)
)


def rows(lines: list[str]) -> pa.Table:
    statuses = [DECODED] * len(lines) + [UNDECODABLE, TOMBSTONE]
    position = {"partition": 0, "time_us": 1, "id": 1, "text_id": None, "values": []}
    found = [
        {**position, "offset": n, "status": status, "key": lines[n] if n < len(lines) else None, "event_time_us": 5}
        for n, status in enumerate(statuses)
    ]
    return pa.Table.from_pylist(found, EVENTS)


@pytest.mark.parametrize("at", SEPARATORS)
@pytest.mark.parametrize("case", ["as_is", "lower"])
def test_each_word_is_a_row_of_its_event(at: str, case: str) -> None:
    words = Explode.model_validate({"at": at, "case": case})
    found = exploded(rows(LINES), words).to_pylist()
    expected = [(n, word, DECODED) for n, line in enumerate(LINES) for word in words.words(line) or [None]]
    expected = [(n, word, DECODED if word is not None else UNOWED) for n, word, _ in expected]
    expected += [(len(LINES), None, UNDECODABLE), (len(LINES) + 1, None, TOMBSTONE)]
    assert [(row["offset"], row["key"], row["status"]) for row in found] == expected


def test_a_record_is_counted_once_and_contributes_each_word() -> None:
    words = Explode(case="lower")
    facts = facts_of_events(exploded(rows(LINES), words), 0, ORACLE, 0, 10, with_first_event=False)
    assert sum(facts["records"].to_pylist()) == len(LINES) + 2
    counted: Counter[str] = Counter()
    for row in facts.to_pylist():
        counted[row["key"]] += row["contributions"]
    assert +counted == Counter(word for line in LINES for word in words.words(line))


def test_the_items_of_an_array_are_words() -> None:
    lines = ['["a", "b", "A"]', "[]", '["\\"", ""]']
    found = exploded(rows(lines), Explode(at="items", case="lower")).to_pylist()
    assert [(row["offset"], row["key"]) for row in found[:5]] == [(0, "a"), (0, "b"), (0, "a"), (1, None), (2, '"')]
    fields = {"key": "tags", "event_time": {"path": "at", "unit": "ms"}}
    decoder = RecordDecoder(Input.model_validate({"topic": "t", "fields": fields, "explode": {"at": "items"}}))
    keys = {"[]": "[]", '["a", 1, 1.0, true]': '["a","1","1","true"]'}
    for tags, key in keys.items():
        event = decoder.decode(Record(f'{{"tags": {tags}, "at": 5}}'.encode()))
        assert isinstance(event, Event)
        assert event.key == key
    refused = {
        '"a"': "is a text, not an array",
        "[null]": "has an item that is null",
        "[[1]]": "has an item that is an array",
    }
    for tags, reason in refused.items():
        assert decoder.decode(Record(f'{{"tags": {tags}, "at": 5}}'.encode())) == Undecodable("key", "tags", reason)


def test_a_word_counts_in_each_of_its_windows() -> None:
    oracle = SlidingWindow.of(20, slide=10).reading(Reads(evidence="values", names_ids=False, explodes=True))
    facts = facts_of_events(exploded(rows(LINES), Explode()), 0, oracle, 0, 10, with_first_event=False)
    assert sum(facts["records"].to_pylist()) == len(LINES) + 2
    counted: Counter[tuple[str, int]] = Counter()
    for row in facts.to_pylist():
        counted[row["key"], row["window_start_us"]] += row["contributions"]
    assert +counted == Counter((word, start) for line in LINES for word in Explode().words(line) for start in (-10, 0))


def test_white_space_is_that_of_java() -> None:
    assert Explode().words("a\tb\nc\x0bd\x0ce\rf\u00a0g\u2003h\x1ci") == [*"abcde", "f\u00a0g\u2003h\x1ci"]


def test_an_engine_may_count_the_empty_word(tmp_path: Path) -> None:
    """As `"a  b".split(" ")` in Java has an empty word, and so has an empty line."""
    run = InMemory(tmp_path, Rules(oracle=ORACLE, overdue_after_us=1, missing_after_us=2))
    position = {"partition": 0, "time_us": START_US, "ids": [], "text_ids": [], "status": DECODED, "values": []}
    counts = {"": 2, "a": 1, "b": 1, "c": 1}
    found = [{**position, "offset": n, "key": word, "count": counts[word]} for n, word in enumerate(counts)]
    lines = exploded(rows(["a  b", ""]), Explode(at="space"))
    events = facts_of_events(lines, 0, ORACLE, 0, 2**61, with_first_event=False)
    results = facts_of_results(pa.Table.from_pylist(found, RESULTS), 1, ORACLE)
    run.step(START_US, *(grouped(part, 1, START_US) for part in (events, results)))
    assert run.step(START_US + 10) == {"expected": 2, "processed": 2, "unknown_id": 1, "correct": 2, "excess": 1}


ITEMS = """
inputs=[{topic: orders, explode: {at: items}, fields: {key: items, event_time: $timestamp}}]
oracle={kind: running_aggregate, values: {words: count, more: sum(%s)}}
outputs.0.fields.values={words: n, more: m}
outputs.0.format=json
"""


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("oracle={kind: tumbling_window, size: 1m, values: {words: count}}", "outputs[0].fields.window_start"),
        ("inputs.0.fields.key=[$value, $key]", "outputs[0].fields.key"),
        ("rejected=[{topic: r, fields: {key: $key, event_time: $timestamp}}]", "words are counted only in values"),
        ("outputs.0.emission=final", "write cumulative"),
        (
            ITEMS % "items.qty",
            "items.qty is a field of what is exploded, and not of the event, which is not supported yet;",
        ),
    ],
)
def test_what_cannot_be_judged_is_refused(setting: str, said: str) -> None:
    with pytest.raises(InvalidConfigError) as refused:
        loads(EXAMPLES["kafka-streams-word-count"], Path("/etc"), setting.strip().splitlines(), {})
    assert said in str(refused.value)


def test_events_with_several_keys_may_have_fields_of_their_own() -> None:
    settings = (ITEMS % "itemsTotal").strip().splitlines()
    found = loads(EXAMPLES["kafka-streams-word-count"], Path("/etc"), settings, {})
    assert found.oracle.stated.paths == ("itemsTotal",)


ROWS = """
pipeline: orders-per-shop
guarantee: exactly_once
kafka: {bootstrap_servers: "127.0.0.1:9092"}
inputs:
  - {topic: orders, envelope: canal, fields: {key: shop, event_time: {path: $envelope.es, unit: ms}}}
outputs:
  - {topic: totals, emission: cumulative, evidence: values, fields: {key: $key, values: {orders: n, sum: sum}}}
oracle: {kind: running_aggregate, values: {orders: count, sum: sum(total)}}
state: {path: state}
"""


def change(kind: str, *shops: str) -> Record:
    rows = [{"shop": shop, "total": "2"} if shop else {"total": "2"} for shop in shops]
    return Record(json.dumps({"type": kind, "es": START_US // 1_000, "isDdl": False, "data": rows}).encode())


def total(shop: str, number: int) -> Record:
    return Record(json.dumps({"n": number, "sum": 2 * number}).encode(), shop.encode())


CHANGES = [change("INSERT", "a", "b", "a"), change("INSERT", "a"), change("UPDATE", "b", "b"), change("ALTER")]
TOTALS = [total("a", 1), total("b", 1), total("a", 2), total("a", 3)]


@pytest.mark.parametrize(
    ("changes", "totals", "counts", "said"),
    [
        (CHANGES, TOTALS, {"expected": 4, "processed": 4}, Verdict.PASS),
        (CHANGES, TOTALS[:3], {"expected": 4, "processed": 3, "missing": 1}, Verdict.FAIL),
        # One row does not decode, so that each of the record's rows may be an event.
        ([*CHANGES, change("INSERT", "a", "", "a")], [*TOTALS, total("a", 5)],
         {"expected": 4, "processed": 4, "duplicate": 2}, Verdict.UNKNOWN),
    ],
    ids=["perfect", "a loss", "a row that does not decode"],
)  # fmt: skip
def test_each_row_of_a_change_is_an_event(
    changes: list[Record], totals: list[Record], counts: dict[str, int], said: Verdict, tmp_path: Path
) -> None:
    logs = {
        topic: [record._replace(offset=n) for n, record in enumerate(records)]
        for topic, records in (("orders", changes), ("totals", totals))
    }
    shown = judged(ROWS, logs, tmp_path)
    found = {name: count for name, count in shown.contributions.items() if count and name in {"duplicate", *counts}}
    assert (shown.verdicts[shown.guarantee], found) == (said, counts), shown.reasons
    assert (shown.events_accounted["read"], shown.coverage_differences) == (len(changes), ())


def test_the_rows_of_a_record_are_grouped_together() -> None:
    """Otherwise each group would count the record."""
    found = list(_cut(iter([rows_of([0, 0, 0, 1, 2, 2, 3])]), 2))
    assert [batch["offset"].to_pylist() for batch in found] == [[0, 0, 0], [1, 2, 2], [3]]


def rows_of(offsets: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"partition": [0] * len(offsets), "offset": offsets})
