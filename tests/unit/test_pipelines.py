"""The configurations of docs/pipelines.md, and what `config init` proposes, on records of well-known pipelines."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from generator.workloads.kinds import built
from tests.unit.local_run import judged
from tests.unit.pipeline_shapes import (
    GALLERY,
    SHAPES,
    START_MS,
    VALIDATION,
    Shape,
    backlogs,
    copied,
    listed,
    log,
    one,
    rows,
)
from tests.unit.proposals import proposed
from tests.unit.workload_shapes import workload_shape
from tests.worlds import some
from validator.cli.check_result import CheckResult
from validator.cli.comparison import compare
from validator.cli.exits import UsageError
from validator.cli.proposal.file import text_of
from validator.cli.proposal.schema_files import formats_of
from validator.codecs.one_record import Event, Record, Result
from validator.config import examples
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.model.classes import Verdict
from validator.model.snapshot import Snapshot
from validator.stream.sources import readers_of, sources_of


def verdict(shown: Snapshot) -> Verdict:
    return shown.verdicts[shown.guarantee]


def check(text: str, shape: Shape, state: Path) -> None:
    perfect = judged(text, shape.logs, state / "perfect", shape.schemas)
    assert verdict(perfect) is Verdict.PASS, (perfect.reasons, perfect.contributions)
    assert perfect.contributions["processed"]
    broken = judged(text, shape.broken, state / "broken", shape.schemas)
    assert verdict(broken) is Verdict.FAIL, (broken.reasons, broken.contributions)
    assert broken.violations["confirmed"]["missing"] == broken.contributions["expected"] - sum(
        broken.contributions[name] for name in ("processed", "late", "rejected")
    )


def test_every_pipeline_of_the_gallery_has_its_records() -> None:
    files = {file.stem for file in Path(examples.__file__).with_name("pipelines").glob("*.yaml")}
    assert files == set(GALLERY)


@pytest.mark.parametrize("name", some(GALLERY))
def test_a_pipeline_of_the_gallery_is_judged_and_a_loss_is_found(name: str, tmp_path: Path) -> None:
    check(EXAMPLES[name], SHAPES[name](), tmp_path)


def test_a_perfect_engine_without_its_emission_is_in_doubt_and_not_accused(tmp_path: Path) -> None:
    found = judged(without_emission(), SHAPES["kafka-streams-windowed"]().logs, tmp_path)
    assert found.violations["confirmed"] == dict.fromkeys(found.violations["confirmed"], 0)
    assert found.violations["suspected"]["duplicate"] > 1_000
    assert found.verdicts == {
        "at_most_once": Verdict.UNKNOWN, "at_least_once": Verdict.UNKNOWN, "exactly_once": Verdict.UNKNOWN,
    }  # fmt: skip
    [reason] = found.reasons
    assert re.fullmatch(
        r"the configuration of topic view-counts is in doubt: in 2\d of 2\d windows with several results their numbers "
        r"rise, and the last one is right, for example the window from 2026-.* of key /\w*: its results are updates, "
        r"and outputs\[0\].emission says that each one counts; write emission: cumulative, with a new state.path",
        reason,
    )


def without_emission() -> str:
    """The file of the gallery, in which each result counts."""
    kept = [one for one in EXAMPLES["kafka-streams-windowed"].splitlines() if "emission: cumulative" not in one]
    return "\n".join(kept)


@pytest.mark.parametrize("name", some(SHAPES))
def test_the_proposed_file_judges_a_perfect_engine_clean_and_finds_a_loss(name: str, tmp_path: Path) -> None:
    shape = SHAPES[name]()
    proposal = proposed(shape)
    text = text_of(proposal, "records")
    assert proposal.is_proven, text
    check(text, shape, tmp_path)


@pytest.mark.parametrize("kind", some(kind for kind in built() if kind != "distinct_count"))
def test_the_proposed_file_of_a_workload_judges_the_perfect_engine_clean(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Words are proposed only where they are counted without windows."""
    shape = workload_shape(kind, monkeypatch)
    proposal = proposed(shape)
    text = text_of(proposal, "records")
    assert proposal.is_proven, text
    check(text, shape, tmp_path)


@pytest.mark.parametrize("name", ["sst", "sliding-ids", "flink-click-count", "kafka-streams-windowed"])
def test_a_sample_of_the_newest_records_proves_the_same(name: str) -> None:
    """The first half of the events is not in it, so some results are about events that it lacks."""
    shape = SHAPES[name]()
    whole, half = proposed(shape), proposed(replace(shape, inputs=newest(shape.inputs), outputs=newest(shape.outputs)))
    assert half.is_proven, half
    for part in ("inputs", "outputs", "oracle"):
        assert half.document[part] == whole.document[part]
    right, of = re.findall(r"(\d+) of (\d+)", half.proof)[0]
    assert right == of


def newest(logs: Mapping[str, Sequence[Record]]) -> dict[str, Sequence[Record]]:
    return {topic: records[len(records) // 2 :] for topic, records in logs.items()}


@pytest.mark.parametrize(
    ("lost", "settings", "said"),
    [
        (False, (), ("ok", "the results of 24 of 24 windows state the values of their events.")),
        (
            True,
            (),
            ("note", "the results of 23 of 24 windows state the values of their events; that of key /help from "),
        ),
        (False, ("oracle.offset=1s",), ("problem", "the results of 0 of ")),
    ],
    ids=["perfect", "a loss", "other windows"],
)
def test_doctor_compares_stated_counts(
    lost: bool, settings: tuple[str, ...], said: tuple[str, str], tmp_path: Path
) -> None:
    shape = SHAPES["kafka-streams-suppressed"]()
    [found] = doctor(EXAMPLES["kafka-streams-suppressed"], shape.broken if lost else shape.logs, tmp_path, *settings)
    assert (found.status, found.text[: len(said[1])]) == said


def doctor(text: str, logs: Mapping[str, Sequence[Record]], state: Path, *settings: str) -> list[CheckResult]:
    """What `streamproof doctor` finds in all records."""
    config = loads(text, state, settings, {})
    sources = sources_of(config)
    records = [
        (source.topic, record.partition, record.offset, record.timestamp_us, decoded)
        for source, reader in zip(sources, readers_of(config, sources), strict=True)
        for record in logs[source.topic]
        if isinstance(decoded := reader.decoder.decode(record), (Event, Result))
    ]
    return list(compare(config, records, whole=dict.fromkeys(logs, True)))


def test_doctor_names_the_emission_of_updates(tmp_path: Path) -> None:
    logs = SHAPES["kafka-streams-windowed"]().logs
    results, emission = doctor(without_emission(), logs, tmp_path)
    assert (results.status, emission.status, emission.subject) == ("note", "problem", "emission")
    assert "in 24 of 24 windows with several results their numbers rise" in emission.text
    assert "write emission: cumulative" in emission.text
    [right] = doctor(EXAMPLES["kafka-streams-windowed"], logs, tmp_path)
    assert right.status == "ok"


def test_doctor_takes_no_repeat_for_an_update(tmp_path: Path) -> None:
    logs = SHAPES["kafka-streams-suppressed"]().logs
    twice = log(one for result in logs["view-counts"] for one in (result, result))
    [found] = doctor(EXAMPLES["kafka-streams-suppressed"], {**logs, "view-counts": twice}, tmp_path)
    assert (found.subject, found.status) == ("results", "problem")


def test_doctor_shows_the_value_that_is_wrong(tmp_path: Path) -> None:
    """The number of orders is right."""
    shape = SHAPES["sums"]()
    text = text_of(proposed(shape), "records")
    [(out, results)] = shape.outputs.items()
    wrong = results[0]._replace(value=(results[0].value or b"").replace(b'"revenue": ', b'"revenue": 1'))
    assert wrong != results[0]
    [found] = doctor(text, {**shape.logs, out: [wrong, *results[1:]]}, tmp_path)
    assert (found.status, "the sample has" in found.text) == ("note", False)
    assert re.search(r"that of key .* is wrong: revenue is 1\S+ and should be \S+", found.text)


def test_aggregates_of_fields_are_proposed_beside_the_count() -> None:
    proposal = proposed(SHAPES["sums"]())
    assert proposal.document["oracle"]["values"] == {
        "orders": "count",
        "revenue": "sum(amount)",
        "smallest": "min(amount)",
        "mean": "avg(amount)",
    }
    assert "18 of 18 windows" in proposal.proof


def test_aggregates_of_fields_are_proposed_without_a_count() -> None:
    of_windows, so_far = (proposed(SHAPES[name]()) for name in ("sums-without-a-count", "sums-so-far"))
    assert of_windows.document["oracle"]["values"] == {"largest": "max(amount)", "revenue": "sum(amount)"}
    assert of_windows.document["oracle"]["size"] == "20s"
    assert so_far.document["oracle"] == {"kind": "running_aggregate", "values": {"revenue": "sum(amount)"}}
    assert so_far.document["outputs"][0]["emission"] == "cumulative"


def test_days_of_a_zone_are_known_by_a_change_of_its_clock() -> None:
    summer, change = (proposed(SHAPES[name]()) for name in ("days-of-a-zone", "days-over-a-change-of-clocks"))
    days = {"kind": "tumbling_window", "size": "1d"}
    assert summer.document["oracle"] == {**days, "offset": "22h"}
    assert any("write oracle.time_zone instead of the offset" in doubt for doubt in summer.doubts)
    assert change.document["oracle"] == {**days, "time_zone": "Europe/Berlin"}
    assert any("Other time zones may have changed their clocks" in doubt for doubt in change.doubts)


def test_counts_on_a_wall_clock_are_recognised() -> None:
    proposal = proposed(SHAPES["counts-on-the-clock-of-the-session"]())
    oracle = proposal.document["oracle"]
    assert (oracle["size"], oracle["time_zone"], oracle["named"]) == ("1m", "Asia/Tokyo", "wall_time")
    assert proposal.document["inputs"][0]["fields"]["event_time"] == {"path": "ts", "unit": "ms"}
    assert "The starts of windows are 9h off UTC, like the clock of Asia/Tokyo." in proposal.doubts
    assert not any("record's timestamp" in doubt for doubt in proposal.doubts)


def test_an_engine_that_damages_some_keys_is_not_judged_by_another_key() -> None:
    """Case 23: the key Zürich is decomposed in results."""
    events = [{"id": n, "k": key, "ts": at} for n, key, at in rows(40, 1, ("Z\u00fcrich", "Genf", "Basel", "Bern"))]
    results = [{**event, "k": unicodedata.normalize("NFD", str(event["k"]))} for event in events]
    proposal = proposed(copied(("in", "out"), *([one(it) for it in of] for of in (events, results))))
    assert (proposal.is_proven, proposal.share) == (False, 0.75)
    assert [part["fields"]["key"] for part in (*proposal.document["inputs"], *proposal.document["outputs"])] == [
        "k",
        "k",
    ]
    assert any("k of a result differs from that of its event in 25%" in doubt for doubt in proposal.doubts)
    assert any("10 of 40 do not agree" in doubt for doubt in proposal.doubts)


def test_a_table_whose_rows_have_not_changed_yet_is_proposed_as_a_table() -> None:
    """Insertions alone fit as well, until a row is removed."""
    counts: Counter[str] = Counter()
    changes, results = [], []
    for n, status, at in rows(60, 1_300, ("new", "paid", "sent")):
        counts[status] += 1
        changes.append(one({"before": None, "after": {"id": n, "status": status}, "op": "c", "ts_ms": at}, {"id": n}))
        results.append(one({"status": status, "orders": counts[status]}, {"status": status}))
    proposal = proposed(Shape({"in": log(changes)}, {"out": log(results)}, {"out": log(results)}))
    [entry], [output] = proposal.document["inputs"], proposal.document["outputs"]
    assert proposal.is_proven
    assert (entry["envelope"], entry.get("table"), output["fields"]["key"]) == ("debezium", True, "$key.status")
    assert any("fits as well with: a running aggregate" in doubt for doubt in proposal.doubts)


def test_an_interval_that_begins_after_its_left_event_is_proposed() -> None:
    oracle = proposed(SHAPES["replies-that-are-not-at-once"]()).document["oracle"]
    assert (oracle["kind"], oracle.get("before"), oracle.get("after")) == ("interval_join", "-5s", "20s")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("debezium-flink", {"envelope": "debezium", "operations": ["create", "read", "update", "delete"]}),
        ("changes-with-schema", {"envelope": "debezium_with_schema", "operations": ["create", "read", "update"]}),
        ("counts-of-insertions", {"envelope": "debezium"}),
        ("maxwell-changes", {"envelope": "maxwell"}),
        ("canal-changes", {"envelope": "canal"}),
        ("changelog-json", {"envelope": "changelog_json"}),
    ],
)
def test_the_envelope_of_changes_and_those_with_a_result_are_recognised(name: str, found: dict[str, Any]) -> None:
    [entry] = proposed(SHAPES[name]()).document["inputs"]
    assert {name: entry.get(name) for name in ("envelope", "operations")} == {"operations": None, **found}


@pytest.mark.parametrize(
    ("name", "envelope"),
    [("flink-sql-table", "debezium"), ("maxwell-table", "maxwell"), ("canal-table", "canal")],
)
def test_counts_of_the_rows_of_a_table_are_recognised(name: str, envelope: str) -> None:
    proposal = proposed(SHAPES[name]())
    [entry] = proposal.document["inputs"]
    assert {name: it for name, it in entry.items() if name != "fields"} == {
        "topic": "shop.public.orders", "envelope": envelope, "table": True,
    }  # fmt: skip
    assert proposal.proof == "The newest orders equals the number of rows per status in 3 of 3 keys."
    # `new` has no row left.
    assert proposal.document["outputs"][0]["fields"]["key"] == "$key.status"
    assert "a running aggregate, key status: 0 of 4" in " ".join(proposal.rejected)
    assert not any("operations" in doubt for doubt in proposal.doubts)


def test_an_engine_that_drops_late_events_is_recognised(tmp_path: Path) -> None:
    """Every tenth event is a minute old."""
    events = [(n, key, at - 60_000 * (n % 10 == 9)) for n, key, at in rows(120, 1_000)]
    of_results = [row for row in events if row[0] % 10 != 9]

    def shape(number: int) -> Shape:
        return listed(
            [row for row in of_results if row[0] != number],
            lambda row: one({"id": row[0], "k": row[1], "ts": row[2]}),
            10_000,
            lambda start, key, ids: one({"k": key, "ws": start, "ids": ids}),
        )

    given = {"in": log(one({"id": n, "k": key, "ts": at}) for n, key, at in events)}
    perfect = replace(shape(-1), inputs=given, lost=shape(77).outputs)
    proposal = proposed(perfect)
    text = text_of(proposal, "records")
    assert proposal.document["timing"]["late_policy"] == "drop", text
    assert verdict(judged(text, perfect.logs, tmp_path / "perfect")) is Verdict.PASS
    broken = judged(text, perfect.broken, tmp_path / "broken")
    assert broken.violations["confirmed"]["missing"] == 1


@pytest.mark.parametrize(
    ("appended_ms", "said"),
    [
        (lambda partition, n: START_MS + 100 * n + 10_000 * partition, "the file says that it drops late events"),
        (lambda _, n: START_MS + n // 20, "the file says that it drops late events"),
        (lambda partition, n: START_MS + 1_000 * n - 120_000 * partition, "No event of partition 1 of in is in a"),
    ],
    ids=["a backlog after newer events", "written at once", "in the order of their times"],
)
def test_a_partition_in_no_result_is_late_or_in_doubt(appended_ms: Callable[[int, int], int], said: str) -> None:
    proposal = proposed(backlogs(appended_ms))
    assert proposal.is_proven
    assert any(said in one for one in proposal.doubts), proposal.doubts
    assert ("late_policy" in proposal.document.get("timing", {})) == ("late" in said)


def messages() -> tuple[bytes, list[bytes]]:
    """Descriptors of Protobuf, and the orders of `avro-service` as messages."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    for number, name in enumerate(("id", "customerId", "createdAt"), 1):
        order.field.add(name=name, number=number, label=1, type=9 if name == "id" else 3)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    orders = [{"id": f"o-{n}", "customerId": int(key), "createdAt": at} for n, key, at in rows(70, 800, ("15", "16"))]
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), [
        made(**one).SerializeToString() for one in orders
    ]


@pytest.mark.parametrize("prefix", [b"", b"\0\0\0\0\7\0"], ids=["alone", "in Confluent's framing"])
def test_schemas_of_files_are_used(prefix: bytes, tmp_path: Path) -> None:
    shape = SHAPES["avro-service"]()
    [(out, results)] = shape.outputs.items()
    [(out, lost)] = shape.lost.items()
    descriptors, values = messages()
    (tmp_path / "orders.desc").write_bytes(descriptors)
    (tmp_path / "validations.avsc").write_text(json.dumps(VALIDATION))
    # The registry's records without Confluent's prefix.
    bare = [[it._replace(value=(it.value or b"")[5:]) for it in of] for of in (results, lost)]
    shape = Shape(
        {"orders": [Record(prefix + value, offset=n) for n, value in enumerate(values)]}, {out: bare[0]}, {out: bare[1]}
    )
    given = [f"orders={tmp_path}/orders.desc", f"{out}={tmp_path}/validations.avsc"]
    formats = formats_of(given, ("orders", out), has_registry=False)
    proposal = proposed(shape, formats)
    text = text_of(proposal, "records")
    assert proposal.is_proven, text
    file = {"file": f"{tmp_path}/validations.avsc"}
    assert proposal.document["outputs"][0]["format"] == {"kind": "avro", "schema": file}
    check(text, shape, tmp_path)
    without = proposed(shape)
    assert not without.is_proven
    assert any(f"name a file with --schema {out}=FILE" in one for one in without.doubts), without.doubts


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("other=a.avsc", "does not begin with a topic"),
        ("orders", "does not begin with a topic"),
        ("orders=absent.avsc", "cannot be read (No such file or directory)"),
        ("orders=empty", "neither an Avro schema nor descriptors"),
        ("orders=orders.desc:shop.Other", "has no such type; use one of shop.Order"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(
    given: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").touch()
    Path("orders.desc").write_bytes(messages()[0])
    with pytest.raises(UsageError) as refused:
        formats_of([given], ("orders",), has_registry=False)
    assert said in str(refused.value)
