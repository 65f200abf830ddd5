"""The bytes on the wire (golden), and the partitions that Kafka's own client assigns to the keys."""

from __future__ import annotations

import json

import pytest

from generator import wire
from generator.partitioning import murmur2, partition_of
from generator.wire import ClickWire, Key

pytestmark = pytest.mark.unit


def test_a_click_has_the_bytes_that_jackson_writes() -> None:
    click = ClickWire(wire.keys(6, 0), None)
    first, second = click.render([1, 123456789012], [0, 5], [1, 59_999], 1_700_000_000_123)
    assert first == (
        b'{"id":1,"timestamp":"1970-01-01T00:00:00.001","page":"/help","creationTimestamp":"2023-11-14T22:13:20.123"}'
    )
    assert second == (
        b'{"id":123456789012,"timestamp":"1970-01-01T00:00:59.999","page":"/news",'
        b'"creationTimestamp":"2023-11-14T22:13:20.123"}'
    )


def test_an_update_has_the_bytes_that_jackson_writes() -> None:
    update = wire.UpdateWire(wire.keys(6, 0), None)
    assert update.render([1, 2], [0, 5], [30_001, 59_999], 1_700_000_000_123) == [
        b'{"id":1,"timestamp":"1970-01-01T00:00:30.001","page":"/help","updatedBy":""}',
        b'{"id":2,"timestamp":"1970-01-01T00:00:59.999","page":"/news","updatedBy":""}',
    ]
    assert update.number_in(update.render([17], [0], [1], -1)[0]) == 17


def test_creation_time_can_be_the_event_time() -> None:
    click = ClickWire(wire.keys(1, 0), None)
    assert click.render([1], [0], [60_001], -1) == [
        b'{"id":1,"timestamp":"1970-01-01T00:01:00.001","page":"/help","creationTimestamp":"1970-01-01T00:01:00.001"}'
    ]


def test_pages_are_pgvals_and_then_numbered() -> None:
    assert [k.page for k in wire.keys(8, 0)] == [*wire.PGVAL_PAGES, "/page-7", "/page-8"]


def test_composite_keys_and_text_ids() -> None:
    all_keys = wire.keys(2, 2)
    assert all_keys[1] == Key("/help", "region-2")
    assert all_keys[1].kafka_key() == b'["/help","region-2"]'
    click = ClickWire(all_keys, '100%"e-')
    value = click.render([7], [1], [1], -1)[0]
    assert json.loads(value) == {
        "id": '100%"e-7',
        "timestamp": "1970-01-01T00:00:00.001",
        "page": "/help",
        "region": "region-2",
        "creationTimestamp": "1970-01-01T00:00:00.001",
    }
    assert click.number_in(value) == 7


@pytest.mark.parametrize("prefix", [None, "click-", ""])
@pytest.mark.parametrize("number", [1, 10, 2**63 - 1])
def test_the_number_of_an_event_is_recovered_from_its_record(prefix: str | None, number: int) -> None:
    click = ClickWire(wire.keys(1, 0), prefix)
    assert click.number_in(click.render([number], [0], [1], -1)[0]) == number


@pytest.mark.parametrize(
    ("page", "partition"), [("/jobs", 0), ("/help", 1), ("/index", 1), ("/shop", 1), ("/about", 1), ("/news", 2)]
)
def test_pgvals_keys_fall_into_the_partitions_seen_with_kafka(page: str, partition: int) -> None:
    assert partition_of(Key(page).kafka_key(), 3) == partition


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536),
     (b"a-little-bit-longer-string", -1486304829), (b"abc", 479470107)],
)  # fmt: skip
def test_murmur2_agrees_with_kafkas_own_test_vectors(data: bytes, expected: int) -> None:
    # Source: org.apache.kafka.common.utils.UtilsTest.testMurmur2.
    assert murmur2(data) == expected & 0xFFFFFFFF
