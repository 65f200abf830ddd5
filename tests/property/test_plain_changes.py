"""Changes of rows: the decoder of one record against changes that the test itself writes, and whole batches through
Arrow against one record at a time, for legal and illegal records of every envelope."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
import pytest

from tests.property.test_plain_events import BYTES, IDS, KEYS, OTHERS, TIMES, batch
from tests.property.test_plain_results import LISTS
from tests.worlds import some
from validator.codecs.batches import EventBatches, ResultBatches
from validator.codecs.columns import DECODED, REMOVED, TOMBSTONE
from validator.codecs.one_record import Event, Record, RecordDecoder, Result, Tombstone, Undecodable, Unexamined
from validator.config.model import Input, Output
from validator.model.envelopes import ENVELOPES
from validator.model.stated_values import Values
from validator.oracles.passthrough import Filter
from validator.oracles.running_aggregate import RunningAggregate
from validator.oracles.seam import Reads
from validator.oracles.tumbling_window import TumblingWindow
from validator.stream.decode import event_reader, result_reader

pytestmark = [pytest.mark.property, pytest.mark.timeout(300)]

START_MS: Final = 1_767_225_600_000
OPERATIONS: Final = ("create", "read", "update", "delete")
TEXTS: Final = {
    "debezium": {"create": "c", "read": "r", "update": "u", "delete": "d", "other": "t"},
    "debezium_with_schema": {"create": "c", "read": "r", "update": "u", "delete": "d", "other": "m"},
    "canal": {"create": "INSERT", "update": "UPDATE", "delete": "DELETE", "other": "ALTER"},
    "maxwell": {"create": "insert", "read": "bootstrap-insert", "update": "update", "delete": "delete",
                "other": "table-alter"},
    "changelog_json": {"create": "+I", "update": "+U", "delete": "-D", "retract": "-U"},
}  # fmt: skip
ODD_TEXTS: Final = ['"x"', '""', "null", "1", "true", '["c"]', "{}", '"C"', '"\\u0063"', '"c","op":"d"']
ODD_ROWS: Final = ["null", "7", "[]", "{}", '"a"', '[{"id":1},{"id":2}]', "[null]"]
FORMS: Final = {
    "debezium": '{"before":%(before)s,"after":%(after)s,"source":{"lsn":%(lsn)s},"op":%(op)s%(other)s}',
    "debezium_with_schema": '{"schema":{"type":"struct","fields":[{"field":"op"}]},"payload":{"op":%(op)s,'
    '"source":{"lsn":%(lsn)s},"after":%(after)s,"before":%(before)s%(other)s}}',
    "canal": '{"data":[%(row)s],"old":[%(old)s],"type":%(op)s,"source":{"lsn":%(lsn)s},"isDdl":false%(other)s}',
    "maxwell": '{"type":%(op)s,"source":{"lsn":%(lsn)s},"data":%(row)s,"old":%(old)s%(other)s}',
    "changelog_json": '{"data":%(row)s,"op":%(op)s,"source":{"lsn":%(lsn)s}%(other)s}',
}
FIELDS: Final[list[dict[str, Any]]] = [
    {"id": "id", "key": "page", "event_time": {"path": "at", "unit": "ms"}},
    {"id": "$envelope.source.lsn", "key": ["m.page", "page"], "event_time": {"path": "at", "unit": "ms"}},
    {"id": "$envelope.source.lsn", "key": "$partition", "event_time": "$timestamp"},
]


def written(kind: str, op: str, before: str, after: str, lsn: str = "1", other: str = "", old: str = "{}") -> bytes:
    """The value of a change. ``before``, ``after``: the row as JSON; of deletions and retractions the first counts.
    ``old``: the fields that changed."""
    texts = TEXTS[kind]
    withdraws = op in {json.dumps(texts[name]) for name in ("delete", "retract") if name in texts}
    given = {"op": op, "before": before, "after": after, "row": before if withdraws else after}
    return (FORMS[kind] % {**given, "lsn": lsn, "other": other, "old": old}).encode("utf-8", "surrogatepass")


def source(kind: str, operations: tuple[str, ...] | None, fields: dict[str, Any], **others: Any) -> Input:
    return Input.model_validate(
        {"topic": "table", "envelope": kind, "operations": operations, "fields": fields, **others}
    )


def table(kind: str, **fields: Any) -> Output:
    given = {"topic": "out", "emission": "cumulative", "envelope": kind}
    evidence = {"evidence": "values"} if "values" in fields else {}
    return Output.model_validate({**given, **evidence, "fields": fields})


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("operations", [None, ("create", "update"), OPERATIONS])
def test_a_declared_change_is_an_event_with_the_fields_of_its_row(
    kind: str, operations: tuple[str, ...] | None
) -> None:
    decoder = RecordDecoder(source(kind, operations, FIELDS[0]))
    chance = random.Random(kind)
    for number in range(200):
        meaning = chance.choice([*TEXTS[kind]])
        before, after = (
            dict[str, Any]({"id": 2 * number + i, "page": f"/{i}", "at": START_MS + i, "m": {}}) for i in (0, 1)
        )
        row = before if meaning in ("delete", "retract") else after
        nothing = meaning in ("create", "read")
        found = decoder.decode(
            Record(written(kind, json.dumps(TEXTS[kind][meaning]), "null" if nothing else json.dumps(before),
                           "null" if meaning == "delete" else json.dumps(after)))
        )  # fmt: skip
        instant = (START_MS + (0 if row is before else 1)) * 1000
        is_event = meaning in (operations or ("create", "read"))
        assert found == (Event(row["id"], row["page"], instant) if is_event else Tombstone(None, instant)), meaning
    assert decoder.decode(Record(None)) == Tombstone()


@pytest.mark.parametrize("kind", TEXTS)
def test_a_deletion_withdraws_the_result_that_its_row_names(kind: str) -> None:
    window = RecordDecoder(
        table(kind, key="page", window_start={"path": "at", "unit": "ms"}, values={"n": "n"}), values=Values("n")
    )
    keyed = RecordDecoder(table(kind, key="$key", ids="ids"))
    row, short = json.dumps({"page": "/a", "at": START_MS, "n": 7, "ids": [1, 2]}), '{"page":"/a"}'
    for meaning, text in TEXTS[kind].items():
        withdraws = meaning in ("delete", "retract")
        raw = written(kind, json.dumps(text), row, row)
        found = [window.decode(Record(raw)), keyed.decode(Record(raw, b"k"))]
        if meaning == "other":
            assert found == [Unexamined(None, None, "is a change that may concern any row")] * 2
            continue
        assert found[0] == Result("/a", START_MS * 1000, ([],) if withdraws else (), 0 if withdraws else 7)
        assert found[1] == Result("k", None, ([],) if withdraws else ([1, 2],))
        if withdraws:
            without = [written(kind, json.dumps(text), before, "null") for before in (short, "null")]
            assert [window.decode(Record(one)) for one in without] == [Tombstone(), Tombstone()]
            assert keyed.decode(Record(without[1], b"k")) == Result("k", None, ([],))


def test_a_null_value_withdraws_the_window_that_its_key_names() -> None:
    given = {"topic": "out", "emission": "cumulative", "key_format": {"kind": "time_windowed", "size": "10s"}}
    fields = {"key": "$key", "window_start": "$key.window_start", "ids": "ids"}
    decoder = RecordDecoder(Output.model_validate({**given, "fields": fields}))
    assert decoder.decode(Record(None, b"/a" + START_MS.to_bytes(8, "big"))) == Result("/a", START_MS * 1000, ([],))
    assert decoder.decode(Record(None, b"/a")) == Tombstone()
    for other in ({"window_start": "$timestamp"}, {"window_start": "at"}, {"key": "page"}, {"window_start": None}):
        decoder = RecordDecoder(Output.model_validate({**given, "fields": {**fields, **other}}))
        assert isinstance(decoder.decode(Record(None, b"/a" + START_MS.to_bytes(8, "big"))), Tombstone)


def test_a_value_that_is_no_change_has_a_place_and_a_reason() -> None:
    plain, wrapped, canal = (
        RecordDecoder(source(kind, OPERATIONS, FIELDS[0])) for kind in ("debezium", "debezium_with_schema", "canal")
    )
    row, one = '{"id":1,"page":"/","at":1}', "and a record with one row can be read"
    cases = [
        (plain, "[1]", "$value", "is an array, not a change"),
        (plain, row, "op", "is absent"),
        (plain, '{"op":"x"}', "op", "is no operation of debezium"),
        (plain, '{"op":7}', "op", "is a number"),
        (plain, '{"op":"c","op":"c"}', "op", "is ambiguous: the name 'op' occurs more than once in one object"),
        (plain, f'{{"op":"d","after":{row}}}', "before", "is null"),
        (plain, f'{{"op":"c","before":{row},"after":5}}', "after", "is a number"),
        (wrapped, f'{{"op":"c","after":{row}}}', "payload", "is absent"),
        (wrapped, '{"payload":{"op":"d","before":null}}', "payload.before", "is null"),
        (wrapped, '{"payload":null}', "payload", "is null"),
        (canal, f'{{"type":"INSERT","data":[{row},{row}]}}', "data", f"has 2 rows, {one}"),
        (canal, '{"type":"INSERT","data":[]}', "data", f"has 0 rows, {one}"),
        (canal, '{"type":"INSERT","data":[null]}', "data", "is null"),
    ]  # fmt: skip
    for decoder, raw, path, reason in cases:
        found = decoder.decode(Record(raw.encode()))
        assert found == Undecodable("envelope", path, reason), raw
        assert decoder.problems(Record(raw.encode())) == (found,)
    twice = plain.decode(Record(f'{{"op":"c","after":{row},"after":{row}}}'.encode()))
    assert isinstance(twice, Undecodable)
    assert (twice.field, "ambiguous" in twice.reason) == ("id", True)
    several = f'{{"type":"UPDATE","data":[{row},{row.replace("1}", "9}")}]}}'.encode()
    assert RecordDecoder(source("canal", None, FIELDS[0])).decode(Record(several)) == Tombstone(None, 9_000)


def odd_changes(kind: str, number: int, chance: random.Random) -> list[bytes]:
    """Changes of which many are unusual; in a long batch few, so that Arrow can read its blocks."""
    rate = 1 if number < 100 else 2 / number
    texts = [json.dumps(text) for text in TEXTS[kind].values()]
    found = []
    for at in range(number):
        given = {"id": str(at), "page": f'"/{at % 3}"', "at": str(START_MS + at), "ids": f"[{at},{at + 1}]", "n": "3"}
        pools = {"id": IDS, "page": KEYS, "at": TIMES, "ids": LISTS, "n": ["0", "-1", "1.5", '"2"', "null"]}
        odd = chance.random() if chance.random() < rate else 0.5
        if odd < 0.2:
            name = chance.choice([*pools])
            given[name] = chance.choice(pools[name])
        row = "{" + ",".join(f'"{name}":{value}' for name, value in given.items()) + ',"m":{"page":"x"}}'
        images = [row, row]
        if odd > 0.85:
            images[chance.randrange(2)] = chance.choice(ODD_ROWS)
        changed = {name: chance.choice((value, "null")) for name, value in given.items()}
        if chance.random() < rate:
            name = chance.choice([*pools])
            changed[name] = chance.choice(pools[name])
        old = "{" + ",".join(f'"{name}":{changed[name]}' for name in chance.sample([*given], chance.randrange(4))) + "}"
        old = chance.choice(ODD_ROWS) if chance.random() < rate / 10 else old
        if kind == "canal" and chance.random() < 0.3:
            # A row is missing at times.
            images, old = [f"{one},{row}" for one in images], ",".join([old] * chance.choice((1, 2, 2, 2)))
        op = chance.choice(ODD_TEXTS) if 0.8 < odd < 0.85 else chance.choice(texts)
        other = chance.choice(OTHERS) if 0.75 < odd < 0.8 else ""
        raw = written(kind, op, images[0], images[1], str(at), other, old)
        if 0.7 < odd < 0.75:
            place = chance.randrange(len(raw) + 1)
            raw = raw[:place] + chance.choice(BYTES) + raw[place + chance.choice([0, 0, 1]) :]
        found.append(raw)
    return found


def rows_of(batches: EventBatches | ResultBatches, values: list[bytes]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        pa.Table.from_batches(list(batches(iter([batch(values)])))).sort_by("offset").to_pylist()
    )
    return found


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("fields", some(FIELDS), ids=str)
def test_changes_decode_the_same_alone_and_among_others(kind: str, fields: dict[str, Any]) -> None:
    chance = random.Random(str((kind, fields)))
    oracles = [
        TumblingWindow.of(60_000_000, 0),
        Filter.model_validate({"kind": "filter", "where": {"path": "n", "at_least": 3}}),
        Filter.model_validate({"kind": "filter", "where": {"path": "$envelope.source.lsn", "below": 100}}),
    ]
    outcome = Counter[str]()
    for operations in (None, ("update", "delete"), OPERATIONS):
        entry = source(kind, operations, fields, missing_key=chance.choice(["undecodable", "owed"]))
        oracle = chance.choice(oracles)
        reader = event_reader(entry, oracle, 0, "auto", missing_key=entry.missing_key)
        fast = reader.batches
        assert isinstance(fast, EventBatches)
        slow = EventBatches(fast.decoder, None, None)
        for number in (*[1] * 60, *[4] * 30, 1_500):
            values = odd_changes(kind, number, chance)
            wanted = rows_of(slow, values)
            for row, found, value in zip(wanted, rows_of(fast, values), values, strict=True):
                assert found == row, value
                outcome[f"status {row['status']}"] += 1
            events = fast.plain.read(batch(values)) if fast.plain else None
            outcome["fast"] += 0 if events is None else len(events.rows)
    assert outcome[f"status {TOMBSTONE}"] > 500, outcome
    assert outcome["fast"] > 2_000 or kind == "canal", outcome


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize(
    "fields",
    some(
        [
            {"key": "page", "event_time": {"path": "at", "unit": "ms"}},
            {"key": ["m.page", "page"], "event_time": {"path": "$envelope.source.lsn", "unit": "s"}},
            {"key": "$partition", "event_time": "$timestamp"},
        ]
    ),
    ids=str,
)
def test_values_of_changes_decode_the_same_alone_and_among_others(kind: str, fields: dict[str, Any]) -> None:
    """Also those of tables, of which a change may have two events."""
    chance = random.Random(str((kind, fields)))
    outcome = Counter[str]()
    for is_table in (True, False):
        for where in (None, {"path": "n", "at_least": 2}, {"path": "n", "exists": True}):
            given = {"table": True} if is_table else {"operations": OPERATIONS}
            missing_key = chance.choice(["undecodable", "owed"])
            time = {"topic": "table", "envelope": kind, "fields": fields, "missing_key": missing_key}
            entry = Input.model_validate({**time, **given})
            values = {"rows": "count", "total": "sum(n)", "some": "count(n)"}
            whole = {"kind": "running_aggregate", "values": values, "where": where}
            is_listed = ENVELOPES[kind].is_listed
            reads = Reads(evidence="values", names_ids=False, signed=is_table, explodes=is_listed)
            oracle = RunningAggregate.model_validate(whole).reading(reads)
            reader = event_reader(entry, oracle, 0, "auto", missing_key=missing_key)
            fast = reader.batches
            assert isinstance(fast, EventBatches)
            slow = EventBatches(fast.decoder, None, None)
            for number in (*[1] * 40, *[4] * 20, 1_500):
                values_of = odd_changes(kind, number, chance)
                wanted, found = rows_of(slow, values_of), rows_of(fast, values_of)
                assert found == wanted
                outcome.update(f"status {row['status']}" for row in wanted)
                outcome["twice"] += len(wanted) - len(values_of)
                events = fast.plain.read(batch(values_of)) if fast.plain else None
                outcome["fast"] += 0 if events is None else len(events.rows)
    assert outcome[f"status {REMOVED}"] > 500, outcome
    assert (outcome["twice"] > 500) == (kind != "changelog_json"), outcome
    assert outcome["fast"] > 2_000 or kind == "canal" or fields["key"] == "$partition", outcome


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize(
    "fields",
    [
        {"key": "page", "window_start": {"path": "at", "unit": "ms"}, "ids": "ids"},
        {"key": "page", "window_start": {"path": "at", "unit": "ms"}, "values": {"n": "n"}},
        {"key": ["page", "m.page"], "ids": ["ids", "$envelope.lists"]},
        {"key": "$partition", "ids": "ids"},
    ],
    ids=str,
)
def test_changed_results_decode_the_same_alone_and_among_others(kind: str, fields: dict[str, Any]) -> None:
    chance = random.Random(str((kind, fields)))
    reader = result_reader(table(kind, **fields), TumblingWindow.of(60_000_000, 0), "auto")
    withdrawn = decoded = 0
    for number in (*[1] * 60, *[4] * 30, 1_500):
        values = [one.replace(b'"source"', b'"lists":[7],"source"') for one in odd_changes(kind, number, chance)]
        rows = rows_of(reader.batches, values)
        for row, value in zip(rows, values, strict=True):
            one = reader.decoder.decode(Record(value, timestamp_us=5))
            found = (row["status"] == DECODED, row["window_start_us"], row["ids"] + row["text_ids"], row["count"])
            if isinstance(one, Result):
                ids = sorted((id_ for ids in one.ids for id_ in ids), key=lambda id_: isinstance(id_, str))
                assert found == (True, one.window_start_us, ids, one.stated_count), value
                assert row["key"] == one.key
                withdrawn += not ids and not one.stated_count
                decoded += 1
            else:
                assert not found[0], value
                assert (row["status"] == TOMBSTONE) == isinstance(one, Tombstone), value
    assert withdrawn > 200 or fields["key"] != "page", withdrawn
    assert decoded > 700


SCHEMA: Final = {
    "type": "record", "name": "Envelope", "fields": [
        {"name": "before", "default": None, "type": ["null", {
            "type": "record", "name": "Value", "fields": [
                {"name": "id", "type": "long"}, {"name": "page", "type": "string"}, {"name": "at", "type": "long"}]}]},
        {"name": "after", "default": None, "type": ["null", "Value"]},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": "long"}]}},
        {"name": "op", "type": "string"}]}  # fmt: skip


@pytest.mark.parametrize("fields", [FIELDS[0], FIELDS[2]], ids=str)
def test_changes_in_avro_decode_the_same_alone_and_among_others(fields: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "envelope.avsc"
    file.write_text(json.dumps(SCHEMA))
    entry = Input.model_validate(
        {"topic": "t", "envelope": "debezium", "operations": ["create", "delete"], "fields": fields,
         "format": {"kind": "avro", "schema": {"file": str(file)}}},
        context={"base": tmp_path},
    )  # fmt: skip
    reader = event_reader(entry, TumblingWindow.of(60_000_000, 0), 0, "auto")
    fast = reader.batches
    assert isinstance(fast, EventBatches)
    parsed, chance = fastavro.parse_schema(SCHEMA), random.Random(4)
    values = []
    for number in range(2_000):
        row = {"id": number, "page": f"/{number % 3}", "at": START_MS + number}
        op = chance.choice("crudtx")
        buffer = io.BytesIO()
        images = {name: row if chance.random() < 0.9 else None for name in ("before", "after")}
        fastavro.schemaless_writer(buffer, parsed, {**images, "source": {"lsn": number}, "op": op})
        raw = buffer.getvalue()
        values.append(raw[:-1] if chance.random() < 0.02 else raw)
    wanted = rows_of(EventBatches(fast.decoder, None, None), values)
    assert rows_of(fast, values) == wanted
    assert fast.plain is not None
    events = fast.plain.read(batch(values))
    assert events is not None
    assert len(events.rows) > 1_000
    assert Counter(row["status"] for row in wanted).keys() == {DECODED, TOMBSTONE, 1, None} - {None}
