"""Partitions on the status page: each update has sums by topic, and rows are sent only on request."""

from __future__ import annotations

import json
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.pages.story import story
from tests.unit.event_stream import listening, next_event
from tests.unit.publish_snapshots import NOON_US, SECOND, clean, config
from validator.model.snapshot import PartitionCoverage, Snapshot
from validator.publish import feed, frontiers
from validator.publish.frontiers import COLUMNS, Frontiers, by_topic, for_update
from validator.publish.publisher import Publisher
from validator.publish.report import build
from validator.publish.server import JSON
from validator.publish.times import rfc3339

pytestmark = pytest.mark.unit

PARTITIONS = 2000
UPDATE_BYTES_MAX = 22_000
ONE = clean().coverage[0]


def wide(snapshot: Snapshot, partitions: int = PARTITIONS) -> Snapshot:
    """``snapshot`` with this number of partitions, in two topics."""
    coverage = [replace(ONE, topic=f"click-{place % 2}", partition=place // 2) for place in range(partitions)]
    return replace(snapshot, coverage=tuple(sorted(coverage, key=lambda p: (p.topic, p.partition))))


def sums(*partitions: PartitionCoverage) -> list[dict[str, Any]]:
    return by_topic(build(replace(clean(), coverage=partitions))["coverage"]["partitions"])


def rows(publisher: Publisher) -> dict[str, Any]:
    """The response to the page's request for partitions."""
    connection = HTTPConnection("127.0.0.1", publisher.start().port, timeout=10)
    try:
        connection.request("GET", "/partitions.json")
        response = connection.getresponse()
        assert (response.status, response.headers["Content-Type"]) == (200, JSON)
        answered: dict[str, Any] = json.loads(response.read())
        return answered
    finally:
        connection.close()
        publisher.stop()


@pytest.mark.parametrize("snapshot", [clean(), story()[-1]], ids=["healthy", "broken"])
def test_an_update_does_not_grow_with_the_partitions(tmp_path: Path, snapshot: Snapshot) -> None:
    sizes = []
    publisher = Publisher(config(tmp_path), tmp_path)
    publisher.publish(wide(snapshot, 2))
    with listening(publisher) as response:
        assert next_event(response)[0] == "history"
        sizes.append(len(feed.event(*next_event(response))))
        publisher.publish(wide(replace(snapshot, taken_us=snapshot.taken_us + SECOND)))
        _, sent = next_event(response)
        sizes.append(len(feed.event("update", sent)))
    few, many = sizes
    assert many < UPDATE_BYTES_MAX
    assert many - few < 300, "longer numbers, and the row of a point more"
    topics = sent["report"]["coverage"]["topics"]
    assert [(topic["topic"], topic["partitions"]) for topic in topics] == [("click-0", 1000), ("click-1", 1000)]


def test_an_update_has_all_of_the_report_but_partitions_and_phases() -> None:
    report = build(story()[-1])
    update = for_update(report)
    assert set(report) - set(update) == {"phases"}
    assert set(report["coverage"]) - set(update["coverage"]) == {"partitions"}
    assert report["coverage"]["partitions"], "the report itself stays whole"


def test_a_topic_is_the_sum_of_its_partitions_in_the_order_of_the_report() -> None:
    other = replace(ONE, topic="a-later-name", role="output", newest_event_time_us=None)
    newer = NOON_US + 3 * SECOND
    far = replace(ONE, partition=1, records=7, lag_events=9, newest_event_time_us=newer)
    behind = replace(ONE, partition=2, read_through_us=NOON_US - 90 * SECOND, newest_event_time_us=None)
    click, later = sums(ONE, far, other, behind)
    assert click == {
        "topic": "click",
        "role": "input",
        "partitions": 3,
        "records": 2 * ONE.records + 7,
        "lag_events": 2 * ONE.lag_events + 9,
        "read_through": rfc3339(NOON_US - 90 * SECOND),
        "newest_event_time": rfc3339(newer),
    }
    assert (later["topic"], later["role"], later["newest_event_time"]) == ("a-later-name", "output", None)


@pytest.mark.parametrize("unread", [0, 1, 2])
def test_a_partition_that_was_never_read_through_leaves_its_topic_unknown(unread: int) -> None:
    parts = [replace(ONE, partition=place) for place in range(3)]
    parts[unread] = replace(parts[unread], read_through_us=None)
    [click] = sums(*parts)
    assert (click["partitions"], click["read_through"]) == (3, None)


def test_a_request_returns_a_row_per_partition_and_their_batch(tmp_path: Path) -> None:
    publisher = Publisher(config(tmp_path), tmp_path)
    publisher.publish(wide(replace(clean(), batches=7)))
    newest = wide(replace(clean(), batches=8, taken_us=NOON_US + SECOND))
    report = publisher.publish(newest)
    found = rows(publisher)
    assert (found["batches"], found["time"]) == (8, rfc3339(NOON_US + SECOND))
    assert tuple(found["columns"]) == COLUMNS
    partitions = report["coverage"]["partitions"]
    assert len(partitions) == PARTITIONS
    assert found["rows"] == [[partition[name] for name in COLUMNS] for partition in partitions]
    assert json.loads((tmp_path / "report.json").read_text())["coverage"]["partitions"] == partitions


def test_before_the_first_batch_there_are_no_rows_and_no_error(tmp_path: Path) -> None:
    found = rows(Publisher(config(tmp_path), tmp_path))
    assert (found["batches"], found["rows"]) == (None, None)


def test_after_a_restart_the_rows_are_those_of_the_old_report(tmp_path: Path) -> None:
    Publisher(config(tmp_path), tmp_path).publish(wide(clean(), 10))
    assert len(rows(Publisher(config(tmp_path), tmp_path))["rows"]) == 10


def test_rows_are_rendered_once_and_only_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    plain_values = frontiers.plain_values

    def counted(value: Any) -> Any:
        made.append(value["batches"])
        return plain_values(value)

    monkeypatch.setattr(frontiers, "plain_values", counted)
    publisher = Publisher(config(tmp_path), tmp_path)
    for batches in (7, 8):
        publisher.publish(wide(replace(clean(), batches=batches)))
    with listening(publisher) as response:
        assert [next_event(response)[0] for _ in range(2)] == ["history", "update"]
    assert made == []
    assert rows(publisher) == rows(publisher)
    assert made == [8]


def test_a_topic_with_direction_marks_is_escaped() -> None:
    escaped = Frontiers(build(replace(clean(), coverage=(replace(ONE, topic="click\u202estream"),)))).encoded()
    assert json.loads(escaped)["rows"][0][0] == r"click\u202estream"
