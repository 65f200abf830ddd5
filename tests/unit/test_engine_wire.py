"""The engines' bytes (golden), and their handling of input that is not an event."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import TopicPartition

from generator.workloads.kinds import named
from testbed.engines import wire
from testbed.engines.core import BEGINNING_MS, LateEvent, PartitionProgress, Result
from testbed.engines.settings import EngineSettings
from testbed.engines.sinks import from_offset, to_offsets

pytestmark = pytest.mark.unit


def test_a_result_is_pgvals_page_statistics() -> None:
    result = Result(0, 60_000, ("/help",), (1, 7), (1, 13))
    assert wire.result_bytes(result) == (
        b'{"page":"/help","windowStart":"1970-01-01T00:00:00.000","windowEnd":"1970-01-01T00:01:00.000",'
        b'"clickIds":[1,7],"updateIds":[]}'
    )
    assert wire.key_bytes(result.key) == b'"/help"'


def test_a_late_event_is_pgvals_click_update_event() -> None:
    assert wire.late_bytes(LateEvent(("/help",), 7, 13)) == (
        b'{"page":"/help","clickId":7,"clickTimestamp":"1970-01-01T00:00:00.013","updateId":0,'
        b'"updateTimestamp":"1970-01-01T00:00:00.000"}'
    )


def test_a_joined_result_has_the_ids_of_both_under_their_own_names() -> None:
    result = Result(0, 60_000, ("/help",), (1, "update/1", 7, "update/invented-ff"), (1, 13, 14, 15))
    assert json.loads(wire.result_bytes(result, "update/")) == {
        "page": "/help",
        "windowStart": "1970-01-01T00:00:00.000",
        "windowEnd": "1970-01-01T00:01:00.000",
        "clickIds": [1, 7],
        "updateIds": [1, "invented-ff"],
    }


def test_a_late_update_has_no_click() -> None:
    assert wire.late_bytes(LateEvent(("/help",), "update/7", 13), "update/") == (
        b'{"page":"/help","clickId":0,"clickTimestamp":"1970-01-01T00:00:00.000","updateId":7,'
        b'"updateTimestamp":"1970-01-01T00:00:00.013"}'
    )


def test_an_update_is_decoded_with_its_input_in_its_id() -> None:
    value = b'{"id":7,"timestamp":"1970-01-01T00:00:00.013","page":"/help","updatedBy":""}'
    assert wire.Decoder(prefix="update/").decode(3, value) == (3, ("/help",), 13, "update/7")
    assert wire.Decoder().decode(3, value) == (3, ("/help",), 13, 7)


def test_text_ids_and_empty_results() -> None:
    result = Result(0, 60_000, ("/a",), ('e"1',), (1,))
    assert json.loads(wire.result_bytes(result))["clickIds"] == ['e"1']
    assert wire.key_bytes(result.key) == b'"/a"'
    assert b'"clickIds":[],' in wire.result_bytes(Result(0, 1, ("/a",), (), ()))


def test_a_click_is_decoded() -> None:
    value = b'{"id":9223372036854775807,"timestamp":"1970-01-01T00:01:00.001","page":"/help","creationTimestamp":"x"}'
    assert wire.Decoder().decode(5, value) == (5, ("/help",), 60_001, 9223372036854775807)


@pytest.mark.parametrize(
    "value",
    [None, b"", b"{", b"[]", b"7", b'{"id":1}', b'{"id":1,"timestamp":"never","page":"/a"}',
     b'{"id":1,"timestamp":5,"page":"/a"}', b'{"id":null,"timestamp":"1970-01-01T00:00:00","page":"/a"}',
     b'{"id":true,"timestamp":"1970-01-01T00:00:00","page":"/a"}', b"\xff"],
)  # fmt: skip
def test_an_undecodable_event_is_none(value: bytes | None) -> None:
    assert wire.Decoder().decode(0, value) is None


@pytest.mark.parametrize(
    ("text", "ms"),
    [("1970-01-01T00:00:00.001", 1), ("1970-01-01T01:00:00.001+01:00", 1), ("1969-12-31T23:59:59.999Z", -1)],
)
def test_times_are_decoded_in_each_form(text: str, ms: int) -> None:
    assert wire.time_ms(text) == ms


def test_progress_survives_as_offset_and_metadata() -> None:
    progress = PartitionProgress(10, 4, BEGINNING_MS)
    (offset,) = to_offsets({("click", 2): progress})
    assert (offset.topic, offset.partition, offset.offset) == ("click", 2, 10)
    assert from_offset(offset, 3) == progress
    assert len(offset.metadata) < 4096


def test_a_group_without_progress_starts_at_the_beginning() -> None:
    assert from_offset(TopicPartition("click", 0, -1001), 3) == PartitionProgress(3, 3, BEGINNING_MS)


def test_an_offset_that_another_tool_committed_is_a_start() -> None:
    assert from_offset(TopicPartition("click", 0, 8), 3) == PartitionProgress(8, 8, BEGINNING_MS)


def test_a_line_is_decoded_by_its_columns_and_filtered_by_a_part_of_a_field() -> None:
    grep = named("grep")
    where = EngineSettings(bootstrap_servers="b:1", workload=grep, **grep.operator(1000)).where
    decoder = wire.Decoder(grep.streams[0], where=where, of=grep)
    assert decoder.decode(3, b"7\t13\t42\tback\taaa") == (3, ("42",), 13, 7)
    assert decoder.decode(4, b"8\t13\t42\tball\taaa") == wire.FilteredOut(4)
    assert decoder.decode(5, b"9\t13\t42\tback") is None
    assert decoder.decode(6, b"x\t13\t42\tback\taaa") is None
    assert decoder.more == {7: {"word": "back", "text": "aaa"}}
    assert json.loads(wire.event_bytes(7, ("42",), 13, grep.streams[0], decoder.more[7])) == {
        "id": 7, "time": "1970-01-01T00:00:00.013", "user": "42", "word": "back", "text": "aaa",
    }  # fmt: skip


def test_each_word_of_a_text_is_a_key_as_often_as_it_occurs() -> None:
    counted = named("distinct_count")
    decoder = wire.Decoder(counted.streams[0], of=counted)
    first = decoder.records(3, b"7\t13\t42\tback\tback punt back   ")
    assert first == [(3, (word,), 13, 7) for word in ("back", "punt", "back")]
    assert decoder.records(4, b"8\t13\t43\t\t      ") == wire.FilteredOut(4)
    rows = [decoder.more[7], decoder.more[7], {"user": "43"}]
    assert json.loads(wire.values_bytes(Result(0, 10, ("back",), (7, 7, 9), (1, 1, 2)), rows, counted)) == {
        "word": "back", "windowStart": "1970-01-01T00:00:00.000", "windowEnd": "1970-01-01T00:00:00.010",
        "count": 3, "users": 2,
    }  # fmt: skip


def test_results_and_late_events_have_the_names_of_their_workload() -> None:
    q8 = named("nexmark_q8")
    result = Result(0, 60_000, ("1003",), (1003, "auction/1009"), (5, 6))
    assert json.loads(wire.result_bytes(result, "auction/", q8)) == {
        "id": "1003", "windowStart": "1970-01-01T00:00:00.000", "windowEnd": "1970-01-01T00:01:00.000",
        "personIds": [1003], "auctionIds": [1009],
    }  # fmt: skip
    late = LateEvent(("1003",), "auction/1009", 13)
    assert json.loads(wire.late_bytes(late, "auction/", q8)) == {
        "id": 1009, "seller": "1003", "dateTime": "1970-01-01T00:00:00.013",
    }  # fmt: skip
