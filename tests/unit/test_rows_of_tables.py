"""An input that is the changelog of a table: what its changes add and remove, and what is proven of their counts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, cast

import pytest

from tests.unit.fed_run import confirmed
from tests.unit.local_run import LATER_US, LocalRun, _LocalRunner, judged
from tests.unit.memory_tables import MemoryTables
from validator.cli.comparison import compare
from validator.codecs.one_record import Event, Record, RecordDecoder, Result, Tombstone, Undecodable
from validator.config.load import InvalidConfigError, loads
from validator.config.model import Config, Input
from validator.model.classes import Guarantee, Verdict, ViolationClass
from validator.model.grading import grade
from validator.model.snapshot import Snapshot
from validator.model.stated_values import Values
from validator.stream.sources import readers_of, sources_of

Row = tuple[str | None, object]
"""Status and amount."""
TEXT: Final = """
pipeline: orders-per-status
guarantee: exactly_once
kafka: {bootstrap_servers: "127.0.0.1:9092"}
inputs:
  - topic: orders
    envelope: debezium
    table: true
    fields: {key: status, event_time: {path: $envelope.ts_ms, unit: ms}}
outputs:
  - {topic: totals, emission: cumulative, evidence: values, fields: {key: $key, values: {orders: n, amount: sum}}}
oracle: {kind: running_aggregate, values: {orders: count, amount: sum(amount)}}
timing: {overdue_after: 10s, missing_after: 20s}
state: {path: state}
"""
SECOND_US: Final = 1_000_000
AT_MS: Final = LATER_US // 1000 - 60_000
BEFORE: Final = "before the change, which the topic of a table needs (in PostgreSQL, set REPLICA IDENTITY FULL)"


def image(row: Row | None) -> dict[str, object] | None:
    return None if row is None else {"status": row[0], "amount": row[1]}


def change(op: str, before: Row | None, after: Row | None, at_ms: int = AT_MS, **others: Any) -> Record:
    whole = {"before": image(before), "after": image(after), "op": op, "ts_ms": at_ms, **others}
    return Record(json.dumps(whole).encode())


def total(status: str, number: int | None, amount: object = None) -> Record:
    value = None if number is None else json.dumps({"n": number, "sum": amount}).encode()
    return Record(value, status.encode())


def decoder(kind: str = "debezium", **others: Any) -> RecordDecoder:
    time = {"path": "$envelope.ts_ms", "unit": "ms"}
    given = {"topic": "orders", "envelope": kind, "table": True, "fields": {"key": "status", "event_time": time}}
    values = Values.of({"n": "count", "sum": "sum(amount)", "some": "count(amount)"})
    return RecordDecoder(Input.model_validate({**given, **others}), values=values)


def event(status: str, amount: str | None, *, is_removed: bool = False) -> Event:
    number, present = (None, None) if amount is None else (Decimal(amount), Decimal(1))
    return Event(0, status, AT_MS * 1000, addends=(number, present), is_removed=is_removed)


@pytest.mark.parametrize("kind", ["debezium", "debezium_with_schema"])
def test_a_change_adds_the_row_after_it_and_removes_the_one_before(kind: str) -> None:
    def found(*given: Any) -> Sequence[object]:
        record = change(*given)
        if kind == "debezium_with_schema":
            assert record.value is not None
            record = Record(b'{"schema":{},"payload":' + record.value + b"}")
        return decoder(kind).decode_all(record)

    new, paid = ("new", "1.50"), ("paid", None)
    assert found("c", None, new) == [event("new", "1.50")]
    assert found("r", None, new) == [event("new", "1.50")]
    assert found("u", new, paid) == [event("paid", None), event("new", "1.50", is_removed=True)]
    assert found("u", new, new) == [event("new", "1.50"), event("new", "1.50", is_removed=True)]
    assert found("d", paid, None) == [event("paid", None, is_removed=True)]
    assert decoder(kind).decode_all(Record(None)) == [Tombstone()]


def old_of(before: Row, after: Row) -> dict[str, object]:
    """The fields before an update that changed."""
    pairs = zip(("status", "amount"), before, after, strict=True)
    return {name: was for name, was, becomes in pairs if was != becomes}


def maxwell(op: str, row: Row, old: object = None) -> Record:
    whole = {"type": op, "data": image(row), "ts_ms": AT_MS, **({} if old is None else {"old": old})}
    return Record(json.dumps(whole).encode())


def canal(op: str, rows: Sequence[Row], old: object = None) -> Record:
    return Record(json.dumps({"type": op, "data": [image(row) for row in rows], "old": old, "ts_ms": AT_MS}).encode())


def test_what_did_not_change_is_absent_from_the_row_before() -> None:
    of_maxwell, of_canal = decoder("maxwell").decode_all, decoder("canal").decode_all
    new, paid, none = ("new", "1.50"), ("paid", "1.50"), ("paid", None)
    assert of_maxwell(maxwell("insert", new)) == [event(*new)]
    assert of_maxwell(maxwell("bootstrap-insert", new)) == [event(*new)]
    assert of_maxwell(maxwell("delete", new)) == [event(*new, is_removed=True)]
    assert of_canal(canal("INSERT", [new, paid])) == [event(*new), event(*paid)]
    assert of_canal(canal("DELETE", [new, paid])) == [event(*one, is_removed=True) for one in (new, paid)]
    for before, after in ((new, paid), (paid, none), (none, paid), (new, none), (new, new)):
        wanted = [event(*after), event(*before, is_removed=True)]
        old = old_of(before, after)
        assert of_maxwell(maxwell("update", after, old)) == wanted
        assert of_canal(canal("UPDATE", [after], [old])) == wanted
        assert of_canal(canal("UPDATE", [new, after], [{}, old]))[2:] == wanted
    # Two names for one field, in either row.
    twice = Record(b'{"type":"update","data":{"status":"new"},"old":{"status":"a","status":"a"},"ts_ms":1}')
    assert "ambiguous" in cast("Undecodable", of_maxwell(twice)[0]).reason
    bad: list[tuple[object, str, str]] = [(None, "old", "is null"), (7, "old", "is a number")]
    for given, place, reason in (*bad, ({"status": None}, "status", "is null")):
        said = Undecodable("envelope" if place == "old" else "key", place, reason)
        assert of_maxwell(maxwell("update", new, given)) == [said]
        assert of_canal(canal("UPDATE", [new], [given])) == [said]
    for size in (0, 2):
        said = Undecodable("envelope", "old", f"has {size} rows, and the change has 1")
        assert of_canal(canal("UPDATE", [new], [{}] * size)) == [said]
    assert of_canal(canal("UPDATE", [new, new], None)) == [Undecodable("envelope", "old", "is null")]
    # Marks of a copy of a table name no row.
    for mark in ("bootstrap-start", "bootstrap-complete"):
        record = Record(json.dumps({"type": mark, "data": {}, "ts_ms": AT_MS}).encode())
        assert of_maxwell(record) == [Tombstone(event_time_us=AT_MS * 1000)]
    keys = decoder("canal", fields={"key": ["status", "amount"], "event_time": "$timestamp"})
    (said,) = keys.problems(canal("INSERT", [("new", 1), ("new", None)]))
    assert (said.path, said.reason) == ("amount", "is null"), "nothing is said of other rows"
    assert of_canal(canal("QUERY", [])) == [Undecodable("envelope", "type", "is a change that may concern any row")]


@pytest.mark.parametrize("kind", ["canal", "maxwell"])
def test_rows_are_counted_by_changes_that_have_only_what_changed(kind: str, tmp_path: Path) -> None:
    changes: list[Record] = []
    for one in CHANGES:
        if one.value is None:
            continue
        whole = json.loads(one.value)
        before, after = (whole[name] and cast("Row", tuple(whole[name].values())) for name in ("before", "after"))
        row, old = after or before, old_of(before, after) if before and after else None
        name = {"c": "insert", "r": "insert", "u": "update", "d": "delete"}[whole["op"]]
        changes.append(canal(name.upper(), [row], old and [old]) if kind == "canal" else maxwell(name, row, old))
    if kind == "canal":
        changes[:2] = [canal("INSERT", [("new", 5), ("new", "7.25")])]
    text = TEXT.replace("debezium", kind)
    right = [*RISING, total("paid", 1, 5), total("new", None), total("paid", 2, 9)]
    for totals, wrong in ((right, {}), (right[:-2], {"duplicate": 1, "missing": 1})):
        shown = judged(text, logs(changes, totals), tmp_path / str(len(totals)))
        assert (confirmed(shown), shown.contributions["expected"]) == (wrong, 9), shown.reasons
        assert (shown.events_accounted["read"], shown.coverage_differences) == (len(changes), ())


def test_the_halves_of_an_update_are_records_of_their_own_in_flink() -> None:
    for op, is_removed in (("+I", False), ("-U", True), ("+U", False), ("-D", True)):
        value = json.dumps({"op": op, "data": {"status": "new", "amount": 2}, "ts_ms": AT_MS}).encode()
        assert decoder("changelog_json").decode_all(Record(value)) == [event("new", "2", is_removed=is_removed)]


def test_a_row_that_is_not_known_makes_the_record_undecodable() -> None:
    place = "envelope", "op"
    cases: dict[str, tuple[Record, tuple[str, str, str]]] = {
        "an update without the row before": (
            change("u", None, ("paid", 1)), ("envelope", "before", f"is null {BEFORE}")),
        "a deletion of which only the primary key is known": (
            change("d", (None, None), None), ("key", "status", f"is null {BEFORE}")),
        "a row without a key": (change("c", None, (None, 1)), ("key", "status", "is null")),
        "an amount before that is none": (
            change("u", ("new", "x"), ("new", 1)), ("values", "amount", "is a text that is not a number")),
        "a truncation": (change("t", None, None), (*place, "is a change that may concern any row")),
        "no operation": (change("x", None, None), (*place, "is no operation of debezium")),
    }  # fmt: skip
    for name, (record, said) in cases.items():
        assert decoder().decode_all(record) == [Undecodable(*said)], name
    # SEMANTICS 2.24: null is a group like others.
    events = decoder(missing_key="owed").decode_all(change("u", (None, 1), ("paid", 1)))
    assert [(one.key, one.is_removed) for one in events if isinstance(one, Event)] == [
        ("paid", False),
        ("[null]", True),
    ]
    wide = RecordDecoder(Input.model_validate({
        "topic": "t", "envelope": "debezium", "table": True,
        "fields": {"key": ["status", "$key.shop"], "event_time": {"path": "at", "unit": "s"}}, "key_format": "json",
    }))  # fmt: skip
    row = {"status": "new", "at": 7}
    record = Record(json.dumps({"op": "u", "before": row, "after": {**row, "at": 9}}).encode(), b'{"shop":"x"}')
    assert [one.event_time_us for one in wide.decode_all(record) if isinstance(one, Event)] == [9_000_000, 7_000_000]


CHANGES: Final = (
    change("c", None, ("new", 5)),
    change("c", None, ("new", "7.25")),
    change("u", ("new", 5), ("paid", 5)),
    change("d", ("new", "7.25"), None),
    Record(None),
    change("r", None, ("paid", None)),
    change("u", ("paid", None), ("paid", 4)),
    change("c", None, ("old", 1)),
)
OLD: Final = total("old", 1, 1)
RISING: Final = (OLD, total("new", 1, 5), total("new", 2, 12.25), total("new", 1, "7.250"))


@pytest.mark.parametrize(
    ("totals", "wrong"),
    [
        ((*RISING, total("paid", 1, 5), total("new", None), total("paid", 2, 9)), {}),
        ((*RISING, total("new", 0, 0), total("paid", 2, 9), total("sent", 0)), {}),
        ((*RISING, total("paid", 2, 9)), {"duplicate": 1}),
        ((OLD, total("paid", 2, 9)), {}),
        ((*RISING, total("new", None), total("paid", 1, 9)), {"missing": 1}),
        ((*RISING, total("new", None)), {"missing": 2}),
        ((*RISING, total("new", None), total("paid", 4, 9)), {"duplicate": 2}),
        ((*RISING, total("new", None), total("paid", 2, 5)), {"wrong_value": 1}),
        ((OLD, total("paid", 2, 9), total("sent", 3, 1)), {"unknown_id": 3}),
    ],
)  # fmt: skip
def test_a_result_states_the_rows_that_are_left(
    totals: Sequence[Record], wrong: Mapping[str, int], tmp_path: Path
) -> None:
    shown = judged(TEXT, logs(CHANGES, totals), tmp_path)
    assert confirmed(shown) == wrong, shown.reasons
    assert shown.contributions["expected"] == 9
    assert shown.contributions["processed"] == 9 - wrong.get("missing", 0)
    is_invented = "unknown_id" in wrong
    others = Verdict.PASS if not wrong else Verdict.FAIL if is_invented else Verdict.UNKNOWN
    assert shown.verdicts == {
        Guarantee.EXACTLY_ONCE: Verdict.FAIL if wrong else Verdict.PASS,
        # A lost change looks like a repeated one, and the reverse.
        **dict.fromkeys((Guarantee.AT_MOST_ONCE, Guarantee.AT_LEAST_ONCE), others),
    }
    assert (shown.events_accounted["read"], shown.events_accounted["tombstone"]) == (len(CHANGES), 1)
    assert shown.coverage_differences == ()


def test_doctor_compares_the_rows_that_are_left() -> None:
    totals = (*RISING, total("new", None), total("paid", 2, 9))
    for given, said in (
        (totals, "2 of 2"),
        ((*totals, total("old", 2, 1)), "1 of 2"),
        ((*totals, total("paid", 2, 5)), "1 of 2"),
    ):
        records = [
            (source.topic, 0, record.offset, 0, one)
            for source, reader in zip(sources_of(config()), readers_of(config(), sources_of(config())), strict=True)
            for record in logs(CHANGES, [*given, total("sent", 0, None)])[source.topic]
            for one in reader.decoder.decode_all(record)
            if isinstance(one, Event | Result)
        ]
        [found] = compare(config(), records, whole={"orders": True, "totals": True})
        assert f"the results of {said} keys state the values" in found.text


def test_an_unreadable_change_may_explain_two_contributions(tmp_path: Path) -> None:
    totals = (*RISING, total("new", None), total("paid", 0))
    for more, says in ((0, {"missing": 2}), (1, {})):
        shown = judged(TEXT, logs([*CHANGES, *[Record(b"{")] * more], totals), tmp_path / str(more))
        assert confirmed(shown) == says
        assert shown.violations["suspected"].get("missing", 0) == 2 * more


def test_a_condition_holds_for_each_row(tmp_path: Path) -> None:
    text = TEXT.replace("amount: sum(amount)}", "amount: sum(amount)}, where: {path: amount, above: 4}")
    changes = [change("c", None, ("new", 3)), change("u", ("new", 3), ("new", 5)), change("u", ("new", 5), ("new", 4))]
    changes += [change("c", None, ("paid", 6)), change("u", ("paid", 6), ("paid", 9))]
    shown = judged(text, logs(changes, [total("new", None), total("paid", 1, 9)]), tmp_path)
    assert (shown.contributions["expected"], confirmed(shown)) == (5, {}), shown.reasons
    assert (shown.events_accounted["tombstone"], shown.coverage_differences) == (1, ())


def logs(changes: Sequence[Record], totals: Sequence[Record]) -> dict[str, list[Record]]:
    return {
        topic: [record._replace(offset=n) for n, record in enumerate(records)]
        for topic, records in (("orders", changes), ("totals", totals))
    }


class Steps:
    """A run to which a test adds records batch after batch."""

    def __init__(self, folder: Path) -> None:
        self.records: dict[str, list[Record]] = {"orders": [], "totals": []}
        self.run = LocalRun(folder, text=TEXT, now_us=LATER_US, tables=MemoryTables())
        self.restart()
        self.read()

    def restart(self) -> None:
        """Continue in another process."""
        self.run.restart()
        cast("_LocalRunner", self.run.runner).logs = self.records

    def read(self, *records: Record, after: float = 1, but: str = "") -> Snapshot:
        """Read a batch, ``after`` seconds after the last one, without the topic ``but``."""
        now_ms = str(self.run.now_us // 1000).encode()
        for record in records:
            topic = "totals" if record.key else "orders"
            # Later than all before it, so that the watermark passes these.
            value = record.value and record.value.replace(str(AT_MS).encode(), now_ms)
            self.records[topic].append(record._replace(value=value, offset=len(self.records[topic])))
        self.run.logs.ends.update({topic: len(of) for topic, of in self.records.items()})
        return self.run.feed((), after_us=round(after * SECOND_US), but=[but] if but else [])

    def tick(self) -> None:
        """A change of another key, by which the watermark passes those before it, and its result."""
        size = sum(b"tick" in (record.value or b"") for record in self.records["orders"]) + 1
        self.read(change("c", None, ("tick", 0)), total("tick", size, 0))


def states(shown: Snapshot) -> dict[str, int]:
    names = ("pending", "overdue", "missing", "duplicate", "unresolved")
    return {name: count for name in names if (count := shown.contributions[name])}


def begun(folder: Path) -> Steps:
    """A run of which the key `new` has two rows."""
    steps = Steps(folder)
    steps.read(change("c", None, ("new", 5)), change("c", None, ("new", 5)), total("new", 2, 10))
    steps.tick()
    return steps


def test_a_deletion_that_the_engine_has_not_applied_is_no_surplus_until_it_is_due(tmp_path: Path) -> None:
    steps = begun(tmp_path)
    steps.read(change("d", ("new", 5), None))
    steps.tick()
    assert states(steps.read())["pending"] >= 1
    assert states(steps.read(after=12))["overdue"] == 1
    assert confirmed(steps.read()) == {}
    steps.read(after=12)
    assert confirmed(steps.read()) == {"duplicate": 1}
    # SEMANTICS 2.21: what is not due yet, and a restart, hide it, but retract nothing.
    assert confirmed(steps.read(change("c", None, ("new", 5)))) == {"duplicate": 1}
    steps.restart()
    assert confirmed(steps.read()) == {"duplicate": 1}
    assert confirmed(steps.read(total("new", 2, 10))) == {"duplicate": 1}
    steps.tick()
    steps.read(after=22)
    assert (confirmed(steps.read()), steps.run.shown().violations["retracted"]["duplicate"]) == ({}, 1)


def test_a_deletion_that_only_the_engine_has_read_is_no_loss(tmp_path: Path) -> None:
    steps = begun(tmp_path)
    steps.read(after=12)
    steps.read(change("d", ("new", 5), None), total("new", 1, 5), but="orders")
    for _ in range(5):
        assert confirmed(steps.read(after=12, but="orders")) == {}
    assert confirmed(steps.read()) == {}
    steps.read(after=22)
    shown = steps.read()
    assert (confirmed(shown), states(shown)) == ({}, {})


def test_nothing_said_of_rows_that_only_the_engine_knows_to_be_gone(tmp_path: Path) -> None:
    """Added and deleted before the first result: an engine that combines changes writes none."""
    steps = Steps(tmp_path)
    steps.read(change("c", None, ("new", 5)))
    steps.tick()
    steps.read(change("d", ("new", 5), None), but="orders")
    for _ in range(5):
        assert confirmed(steps.read(after=12, but="orders")) == {}
    steps.read()
    steps.read(after=22)
    assert confirmed(steps.read()) == {}
    assert steps.run.end().verdicts[Guarantee.EXACTLY_ONCE] is Verdict.PASS


def test_an_older_result_that_is_written_again_has_its_time(tmp_path: Path) -> None:
    steps = begun(tmp_path)
    steps.read(change("d", ("new", 5), None), total("new", 1, 5))
    steps.tick()
    steps.read(after=30)
    # A restored checkpoint: the result before the deletion.
    assert confirmed(steps.read(total("new", 2, 10))) == {}
    steps.read(after=12)
    assert confirmed(steps.read()) == {}
    assert confirmed(steps.read(total("new", 1, 5))) == {}
    steps.read(total("new", 2, 10))
    steps.read(after=22)
    assert confirmed(steps.read()) == {"duplicate": 1}


def test_a_falling_count_proves_a_loss_once_the_key_rests(tmp_path: Path) -> None:
    steps = begun(tmp_path)
    for _ in range(3):
        steps.read(change("c", None, ("new", 5)), change("d", ("new", 5), None), total("new", 2, 10))
    steps.read(change("d", ("new", 5), None), total("new", 0))
    steps.tick()
    steps.read(after=22)
    assert confirmed(steps.read()) == {"missing": 1}
    steps.read(total("new", 1, 5))
    steps.read(after=22)
    assert confirmed(steps.read()) == {}


def test_without_a_loss_or_a_repeat_being_clear_only_exactly_once_fails() -> None:
    unclear = frozenset({ViolationClass.MISSING, ViolationClass.DUPLICATE})
    for name in unclear:
        found = grade({name: 1}, (), unclear=unclear)
        assert found[Guarantee.EXACTLY_ONCE] is Verdict.FAIL
        assert {found[other] for other in Guarantee if other is not Guarantee.EXACTLY_ONCE} == {Verdict.UNKNOWN}


def config(*settings: str) -> Config:
    return loads(TEXT, Path("/etc"), settings, {})


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("inputs.0.operations=[create]", "every change of a table counts; leave it out"),
        (
            "inputs.0={topic: t, table: true, fields: {key: status, event_time: $timestamp}}",
            "the records are not changes; write envelope: canal or changelog_json",
        ),
        ("inputs.0.tombstone=delete", "a change of the envelope has the row that it deletes; leave it out"),
        (
            (
                "inputs.0={topic: t, table: true, tombstone: delete, operations: [create], "
                "fields: {key: status, event_time: $timestamp}}"
            ),
            "the records are not changes",
        ),
        (
            (
                "inputs.0={topic: t, table: true, envelope: maxwell, format: avro, "
                "fields: {key: k, event_time: $timestamp}}"
            ),
            "avro does not show which fields are absent from `old`",
        ),
        ("oracle.values={orders: count, amount: max(amount)}", "only by results that state their number"),
        ("oracle.values={orders: count(amount), amount: sum(amount)}", "only by results that state"),
        (
            "rejected=[{topic: r, envelope: debezium, fields: {key: status, event_time: $timestamp}}]",
            "only by results that state",
        ),
        ("guarantee=at_least_once", "the number of rows of a table does not show whether a pipeline is at_least_once"),
        ("inputs.0.explode={at: space}", "only by results that state"),
    ],
)
def test_what_cannot_be_judged_is_refused(setting: str, said: str) -> None:
    assert config().oracle.reads.signed
    with pytest.raises(InvalidConfigError) as refused:
        config(setting)
    assert said in str(refused.value)


def test_windows_do_not_count_the_rows_of_a_table() -> None:
    windows = "oracle={kind: tumbling_window, size: 1m, values: {orders: count, amount: sum(amount)}}"
    start = "outputs.0.fields={key: $key, window_start: $timestamp, values: {orders: n, amount: sum}}"
    with pytest.raises(InvalidConfigError, match="only by results that state"):
        config(windows, start, "outputs.0.emission=final")


def aggregated(changes: Sequence[tuple[str, Row | None, Row | None]]) -> list[Record]:
    """The results of Flink, which ignores the removal of a row from a key without rows."""
    found: list[Record] = []
    rows: dict[str, list[int]] = {}
    for _, before, after in changes:
        for row, sign in ((before, -1), (after, 1)):
            if row is None or (sign < 0 and row[0] not in rows):
                continue
            status, amount = str(row[0]), cast("int", row[1])
            number, amounts = rows.get(status, [0, 0])
            rows[status] = [number + sign, amounts + sign * amount]
            if not rows[status][0]:
                del rows[status]
            found.append(total(status, *rows.get(status, (None,))))
    return found


def test_a_log_that_removes_more_rows_than_it_adds_lacks_changes(tmp_path: Path) -> None:
    """Two rows of the table are older than the log, which begins without a snapshot."""
    whole = [("c", None, (f"kind-{n % 5}", n)) for n in range(40)]
    changes = [*whole, ("u", ("new", 5), ("paid", 5)), ("d", ("new", 7), None)]
    found = judged(TEXT, logs([change(*one) for one in changes], aggregated(changes)), tmp_path)
    assert confirmed(found) == {}
    assert found.verdicts[Guarantee.EXACTLY_ONCE] is Verdict.UNKNOWN
    assert any("of 1 key they remove more rows than they add" in reason for reason in found.reasons)


def test_a_truncation_may_remove_any_number_of_rows(tmp_path: Path) -> None:
    rows = [("c", None, ("new", 5))] * 30 + [("c", None, ("paid", 1))]
    changes = [change(*one) for one in rows]
    changes.insert(30, change("t", None, None))
    results = [*aggregated(rows[:30]), total("new", None), *aggregated(rows[30:])]
    found = judged(TEXT, logs(changes, results), tmp_path)
    assert confirmed(found) == {}
    assert found.verdicts[Guarantee.EXACTLY_ONCE] is Verdict.UNKNOWN
