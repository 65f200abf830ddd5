"""The workloads: the records of a seed, NexMark's model, and the table of the documentation."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from generator.streambench import OnRecords
from generator.workloads.kinds import built, named
from testbed.engines.registry import REGISTRY
from testbed.run_files import Topics
from tests.engines.killed_workloads import KILLED
from tests.unit.sent_records import Sent, digest, sent
from tests.unit.workload_shapes import PARAMETERS, reported, workload_shape
from tests.workload_count import event_of
from tests.workload_errors import listed
from validator.model.classes import Verdict

pytestmark = pytest.mark.unit

SHORT: Final[dict[str, Any]] = {
    "window": "10s", "events_per_window": 50, "limit": {"events": 3000}, "flush_windows": True, "seed": 7,
}  # fmt: skip
DEVIATIONS: Final[dict[str, Any]] = {
    "disorder": {"share": 0.1, "within": "1s"},
    "lateness": {"share": 0.03, "beyond": "7s"},
    "duplicates": {"share": 0.02},
}
BYTES: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "sst": ({}, "30da23ab7f0ea637"),
    "sst with all options": (
        {
            **DEVIATIONS, "flush_windows": False, "producers": 2, "keys": {"pages": 5, "regions": 2},
            "id": {"kind": "string"}, "update_percent": 10,
        },
        "93e68c874f21567b",
    ),
    "sst with sessions": ({**DEVIATIONS, "sessions": {"events": 5, "gap": "2s"}}, "a7f480f88ee8e818"),
    "mst": ({"workload": "mst", "update_percent": 10}, "7d05e66cc5e12b10"),
    "mst with all options": (
        {
            **DEVIATIONS, "workload": "mst", "update_percent": 20, "id": {"kind": "string"}, "update_topic": "news",
            "limit": {"windows": 4},
        },
        "e958316dd3335641",
    ),
    **{
        kind: ({"workload": kind}, expected)
        for kind, expected in {
            "nexmark_q5": "674160976b6e48d2",
            "shufflebench": "5f47eb3db743b303",
            "statistics": "e4f8f91ac4ad337d",
            "traffic_join": "688d51b1056088bf",
            "wordcount": "ecbec222cfa72c1f",
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("name", BYTES)
def test_a_seed_gives_the_same_bytes_in_every_version(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, expected = BYTES[name]
    assert digest(sent(monkeypatch, {**SHORT, **settings})) == expected


NEW: Final = [kind for kind, one in built().items() if not (one.has_text_ids or one.follows)]


def fields(record: Sent) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(record.value)
    return decoded


@pytest.mark.parametrize("kind", NEW)
def test_events_follow_from_the_seed_and_not_from_batches_or_producers(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**SHORT, "workload": kind, "flush_windows": False}
    one = sent(monkeypatch, settings)
    assert digest(sent(monkeypatch, {**settings, "seed": 8})) != digest(one)
    monkeypatch.setattr("generator.producer.BATCH_SENDS_MAX", 7)
    assert digest(sent(monkeypatch, settings)) == digest(one)
    # Each producer has the event times from the start, so only times differ.
    both = sent(monkeypatch, {**settings, "producers": 2})
    assert sorted(r.key or b"" for c in both for r in c) == sorted(r.key or b"" for c in one for r in c)


@pytest.mark.parametrize("kind", NEW)
def test_the_final_events_reach_every_partition_and_follow_all_others(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = named(kind).streams
    clients = sent(monkeypatch, {**SHORT, "workload": kind}, partitions=5)
    for records, final in zip(clients[: len(streams)], clients[len(streams) :], strict=True):
        assert {record.partition for record in final} == set(range(5))
        assert {record.topic for record in (*records, *final)} == {records[0].topic}


@pytest.mark.parametrize("kind", [kind for kind in NEW if issubclass(built()[kind], OnRecords)])
def test_records_have_streambenchs_sizes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    [records] = sent(monkeypatch, {**SHORT, "workload": kind, "flush_windows": False})
    size, columns = (200, 17) if kind in ("sample", "statistics") else (60, 5)
    assert {(len(record.value), len(record.value.split(b"\t"))) for record in records} == {(size, columns)}


@pytest.mark.parametrize(("kind", "own"), [("identity", 2), ("wordcount", 2), ("statistics", 4)])
def test_records_repeat_after_those_of_the_seed(kind: str, own: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """``own``: number of leading fields; all others are cycled."""

    def cycled(**parameters: int) -> list[list[bytes]]:
        settings = {**SHORT, "limit": {"events": 400}, "flush_windows": False}
        [records] = sent(monkeypatch, {**settings, "workload": {"kind": kind, **parameters}})
        records.sort(key=lambda record: int(record.value.split(b"\t")[0]))
        assert [int(record.value.split(b"\t")[0]) for record in records] == list(range(1, 401))
        return [record.value.rstrip(b" 0").split(b"\t")[own:] for record in records]

    few, default = cycled(seed_records=150), cycled()
    assert few[:250] == few[150:]
    assert few[:149] == default[:149], "the first records are the same"
    assert default[149:250] != few[149:250]
    assert cycled(seed_records=100_000) == default


def test_bids_have_beams_references_and_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    many = {**SHORT, "events_per_window": 500, "limit": {"events": 46_000}, "flush_windows": False}
    [bids] = sent(monkeypatch, {**many, "workload": "nexmark_q1"})
    assert {len(bid.value) for bid in bids} == {100}
    hot = Counter[str]()
    for bid in map(fields, bids):
        epoch = (bid["id"] - 1) // 46
        newest_auction, newest_person = epoch * 3 + 2, epoch
        auction, bidder = bid["auction"] - 1000, bid["bidder"] - 1000
        assert max(0, newest_auction - 100) <= auction <= newest_auction + 10 or auction == newest_auction // 100 * 100
        assert max(0, newest_person - 999) <= bidder <= newest_person + 10 or bidder == newest_person // 100 * 100 + 1
        assert 100 <= bid["price"] <= 100_000_000
        hot["auction"] += auction == newest_auction // 100 * 100
        hot["bidder"] += bidder == newest_person // 100 * 100 + 1
    assert hot["auction"] / len(bids) == pytest.approx(0.5, abs=0.02)
    assert hot["bidder"] / len(bids) == pytest.approx(0.75, abs=0.02)
    [skewed] = sent(monkeypatch, {**many, "workload": {"kind": "nexmark_q1", "hot_share": 0.1}})
    found = sum((f := fields(bid))["auction"] - 1000 == ((f["id"] - 1) // 46 * 3 + 2) // 100 * 100 for bid in skewed)
    assert found / len(skewed) == pytest.approx(0.11, abs=0.02)


def test_persons_and_auctions_have_beams_proportions(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**SHORT, "limit": {"events": 4_000}, "workload": "nexmark_q8", "flush_windows": False}
    persons, auctions = sent(monkeypatch, settings)
    assert [fields(person)["id"] for person in persons] == list(range(1000, 2000))
    assert [fields(auction)["id"] for auction in auctions] == list(range(1000, 4000))
    for auction in map(fields, auctions):
        newest = (auction["id"] - 1000) // 3
        seller = auction["seller"] - 1000
        assert max(0, newest - 999) <= seller <= newest + 10 or seller == newest // 100 * 100
        assert auction["reserve"] > auction["initialBid"]
        assert auction["expires"] > auction["dateTime"]


@pytest.mark.parametrize("category", [10, 12, 0])
def test_query_3_joins_auctions_of_one_category_or_of_all(
    category: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(PARAMETERS, "nexmark_q3", {"category": category})
    of, shape = named(f"nexmark_q3:category={category}"), workload_shape("nexmark_q3", monkeypatch)
    persons, auctions = [[json.loads(one.value or b"") for one in records] for records in shape.inputs.values()]
    states = {one["id"]: one["state"] for one in persons}
    categories = {one["id"]: one["category"] for one in auctions}
    results = [json.loads(one.value or b"") for one in shape.outputs["output"]]
    joined = {id_ for one in results for id_ in one["auctionIds"]}
    assert {categories[id_] for id_ in joined} == ({category} if category else {10, 11, 12, 13, 14})
    assert {states[id_] for one in results for id_ in one["personIds"]} == {"OR", "ID", "CA"}
    whole, found = reported(Topics(of), {**shape.inputs, **shape.outputs}, tmp_path / "whole")
    assert (whole.verdicts[whole.guarantee], found) == (Verdict.PASS, {}), whole.reasons
    lossy, found = reported(Topics(of), {**shape.inputs, **shape.lost}, tmp_path / "lossy")
    assert lossy.verdicts[lossy.guarantee] is Verdict.FAIL
    assert {name for name, _ in found} == {"missing"}


@pytest.mark.parametrize("kind", ["wordcount", "distinct_count"])
def test_a_text_counts_once_for_each_of_its_words(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    of, shape = named(kind), workload_shape(kind, monkeypatch)
    events = [event_of(of.streams[0], bytes(one.value or b"")) for one in shape.inputs["text"]]
    words = [fields["text"].split() for *_, fields in events]
    assert {len(one) for one in words} == {3}
    assert any(len(set(one)) < len(one) for one in words)
    assert {one[0] for one in words} > {"back"}
    whole, found = reported(Topics(of), {**shape.inputs, **shape.outputs}, tmp_path / "whole")
    assert (whole.verdicts[whole.guarantee], found) == (Verdict.PASS, {}), whole.reasons
    assert whole.contributions["processed"] == sum(map(len, words))
    lossy, found = reported(Topics(of), {**shape.inputs, **shape.lost}, tmp_path / "lossy")
    assert lossy.verdicts[lossy.guarantee] is Verdict.FAIL
    assert {name for name, _ in found} == {"missing"}


def test_a_wrong_number_of_users_is_a_wrong_value(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    of, shape = named("distinct_count"), workload_shape("distinct_count", monkeypatch)
    first, *others = shape.outputs["output"]
    stated = json.loads(first.value or b"")
    wrong = first._replace(value=json.dumps(stated | {"users": stated["users"] + 1}).encode())
    report, found = reported(Topics(of), {**shape.inputs, "output": [wrong, *others]}, tmp_path / "wrong")
    assert report.verdicts[report.guarantee] is Verdict.FAIL
    assert [name for name, _ in found] == ["wrong_value"]


PAGE: Final = Path(__file__).parents[2] / "docs" / "engines.md"
BEGIN, END = "<!-- workloads -->\n", "<!-- end of workloads -->\n"


def table() -> str:
    rows = [
        "| `workload` | what the engine does | streams | operator | also on |",
        "|---|---|---|---|---|",
    ]
    for kind, one in built().items():
        of = named(kind)
        streams = ", ".join(
            f"`{stream.name}` by `{of.key if stream.has_words else stream.fields['key']}`" for stream in of.streams
        )
        state = "stateless" if of.operator(1000).get("operator") == "passthrough" else "stateful"
        inputs = "SISO" if len(of.streams) == 1 else "MISO"
        on = [name for name, entry in REGISTRY.items() if kind in entry.workloads]
        engines = ", ".join(f"**{name}**" if (name, kind) in KILLED else name for name in on)
        meaning = (one.__doc__ or "").partition(".")[0]
        if one.follows is not None:
            meaning += f"; after `{one.follows.kind}`"
        rows.append(f"| `{kind}` | {meaning} | {streams} | {inputs}, {state} | {engines} |")
    return (
        "\n".join(rows)
        + "\n\nThese [mutations](#mutations) are found exactly, also beside `abort_retry` and `delay`:\n"
        + listed()
    )


def test_the_table_of_workloads_is_that_of_the_classes() -> None:
    """`STREAMPROOF_WRITE=1` writes it."""
    assert {kind for name, kind in KILLED if kind not in REGISTRY[name].workloads} == set()
    assert {kind for _, kind in KILLED} == set(built()), "tests/engines kills each workload on a real engine"
    before, _, rest = PAGE.read_text().partition(BEGIN)
    written, _, after = rest.partition(END)
    if os.environ.get("STREAMPROOF_WRITE"):
        PAGE.write_text(before + BEGIN + table() + END + after)
    else:
        assert written == table(), "run it again with STREAMPROOF_WRITE=1"
