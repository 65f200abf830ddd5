"""ShuffleBench: the published hashes, the matcher against a loop over its rules, the records and the state."""

from __future__ import annotations

import re
import struct
from base64 import b64encode
from collections import Counter
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from generator.shufflebench import name_of, state_bytes
from generator.workloads.kinds import named
from testbed.engines import wire
from testbed.engines.core import Result
from testbed.run_files import Topics
from tests.unit.rule_loop import hash_matches, matches, range_matches
from tests.unit.sent_records import sent
from tests.unit.workload_shapes import PARAMETERS, reported, workload_shape
from validator.model.classes import Verdict
from validator.model.komihash import komihash, komihash_of_16
from validator.model.range_rules import HASH_SEED, Matcher, matcher
from validator.model.rules import Matching, Rules
from validator.oracles.rule_match import Matches, RuleMatch

pytestmark = pytest.mark.unit

BULK: Final = bytes(range(31))
PUBLISHED: Final[list[tuple[int, str | bytes, int]]] = [
    (0, "The cat is out of the bag", 0xD15723521D3C37B1),
    (0, "A 16-byte string", 0x467CAA28EA3DA7A6),
    (0, "The new string", 0xF18E67BC90C43233),
    (0, "7 chars", 0x2C514F6E5DCB11CB),
    (0, BULK[:3], 0x7A9717E9EEA4BE8B),
    (0, BULK[:6], 0xA56469564C2EA0FF),
    (0, BULK[:8], 0x00B4313A24431306),
    (0, BULK[:12], 0x64C2AD96013F70FE),
    (0, BULK[:20], 0x7A3888BC95545364),
    (0, BULK[:31], 0xC77E02ED4B201B9A),
    (0x0123456789ABCDEF, "The cat is out of the bag", 0x5B1DA0B43545D196),
    (0x0123456789ABCDEF, "A 16-byte string", 0x26AF914213D0C915),
    (0x0123456789ABCDEF, "7 chars", 0x90AB7C9F831CD940),
    (0x100, "The cat is out of the bag", 0xA761280322BB7698),
    (0x100, "A 16-byte string", 0x11C31CCABAA524F1),
    (0x100, "The new string", 0x3A43B7F58281C229),
    (0x100, "7 chars", 0xCFF90B0466B7E3A2),
]
"""From komihash's README. No message ends with a byte above 127, so version 4.3 has the same hashes."""


@pytest.mark.parametrize("version", [4.3, 5.0])
@pytest.mark.parametrize(("seed", "message", "expected"), PUBLISHED)
def test_hashes_are_the_published_ones(seed: int, message: str | bytes, expected: int, version: float) -> None:
    data = message.encode() if isinstance(message, str) else message
    assert komihash(data, seed, version=version) == expected


@given(st.lists(st.binary(min_size=16, max_size=16), min_size=1), st.integers(0, (1 << 64) - 1))
def test_many_hashes_are_those_of_each_message(messages: list[bytes], seed: int) -> None:
    words = np.frombuffer(b"".join(messages), "<u8").reshape(-1, 2)
    for version in (4.3, 5.0):
        found = komihash_of_16(words[:, 0].copy(), words[:, 1].copy(), seed, version=version)
        assert found.tolist() == [komihash(message, seed, version=version) for message in messages]


@pytest.mark.parametrize(
    ("rules", "selectivity", "zipf"),
    [
        (1, 1.0, 0.0),
        (1, 0.999999, 0.0),
        (2, 0.5, 0.0),
        (40, 1.0, 0.0),
        (300, 1.0, 1.2),
        (2_000, 0.5, 0.0),
        (7, 0.0, 0.0),
    ],
)
def test_the_index_finds_the_rules_that_a_loop_over_all_rules_finds(
    rules: int, selectivity: float, zipf: float
) -> None:
    of = Matcher(Rules(rules, selectivity, zipf).shares())
    heads = [struct.pack(">qQ", number, number * 0x9E3779B97F4A7C15 % (1 << 64)) for number in range(200)]
    expected = [matches(head, rules, selectivity, zipf) for head in heads]
    assert [of.of(head) for head in heads] == expected
    hashes = np.array([komihash(head, HASH_SEED) for head in heads], np.uint64)
    pairs = list(zip(*(column.tolist() for column in of.of_all(hashes)), strict=True))
    assert pairs == [(place, rule) for place, found in enumerate(expected) for rule in found]


def test_the_sidecar_finds_the_rules_that_a_loop_over_all_rules_finds() -> None:
    heads = [struct.pack(">qQ", number, number * 0x9E3779B97F4A7C15 % (1 << 64)) for number in range(100)]
    texts = [*(b64encode(head).decode() for head in heads), "has 2000000 bytes", "AAAA", ""]
    found = Matches(Rules(300, 1.0, 1.2), "rule-")
    expected = [[f"rule-{rule}" for rule in matches(head, 300, 1.0, 1.2)] for head in heads] + [[], [], []]
    assert sum(map(len, expected)) > 50
    assert found.lists(pa.array(texts)).to_pylist() == [found.words(text) for text in texts] == expected


SELECTIVITIES: Final = "0.02=20 0.5=1 0.0=2 1=1"
NO_PAIR: Final = "is not a share from 0 to 1 with its number of rules; write it as 0.01=100"
SHARES: Final = [0.02] * 20 + [0.5] + [0.0] * 2 + [1.0]


@pytest.mark.parametrize("matching", ["ranges", "hashes"])
def test_selectivities_and_hashes_match_as_a_loop_over_the_rules(matching: Matching) -> None:
    of = matcher(Rules(selectivities=SELECTIVITIES, matching=matching))
    heads = [struct.pack(">qQ", number, number * 0x9E3779B97F4A7C15 % (1 << 64)) for number in range(400)]
    loop = hash_matches if matching == "hashes" else range_matches
    expected = [loop(head, SHARES) for head in heads]
    words = np.frombuffer(b"".join(heads), "<u8").reshape(-1, 2)
    pairs = list(zip(*(column.tolist() for column in of.of_words(words[:, 0], words[:, 1])), strict=True))
    assert [of.of(head) for head in heads] == expected
    assert pairs == [(place, rule) for place, found in enumerate(expected) for rule in found]
    numbers = Counter(rule for found in expected for rule in found)
    assert (numbers[21], numbers[22], numbers[23]) == (0, 0, 400)
    assert numbers[20] == pytest.approx(200, abs=40)
    assert sum(numbers[rule] for rule in range(20)) == pytest.approx(160, abs=50)


@pytest.mark.parametrize("matching", ["ranges", "hashes"])
def test_an_engine_with_other_rules_is_found(
    matching: Matching, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = {"selectivities": SELECTIVITIES, "matching": matching}
    monkeypatch.setitem(PARAMETERS, "shufflebench", given)
    shape = workload_shape("shufflebench", monkeypatch)
    topics = Topics(named("shufflebench").model_copy(update=given))
    whole, found = reported(topics, {**shape.inputs, **shape.outputs}, tmp_path / "whole")
    assert (whole.verdicts[whole.guarantee], found) == (Verdict.PASS, {}), whole.reasons
    heads = [bytes(record.value or b"")[:16] for of in shape.inputs.values() for record in of]
    loop = hash_matches if matching == "hashes" else range_matches
    assert whole.contributions["processed"] == sum(len(loop(head, SHARES)) for head in heads)
    other = {"selectivities": SELECTIVITIES, "matching": "ranges" if matching == "hashes" else "hashes"}
    topics = Topics(named("shufflebench").model_copy(update=other))
    wrong, found = reported(topics, {**shape.inputs, **shape.outputs}, tmp_path / "wrong")
    assert wrong.verdicts[wrong.guarantee] is Verdict.FAIL
    assert {"missing", "duplicate"} <= {name for name, _ in found}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("rules=3,selectivities=0.5=2", "selectivities say which consumers there are; leave out rules"),
        (
            "selectivities= ",
            "selectivities: there is no share; write shares with their numbers of rules, as 0.01=100 0.5=2",
        ),
        ("selectivities=2.5=2", f"selectivities: 2.5=2 {NO_PAIR}"),
        ("selectivities=0.1=0", f"selectivities: 0.1=0 {NO_PAIR}"),
        ("selectivities=0.\u0665=2", f"selectivities: 0.\u0665=2 {NO_PAIR}"),
        ("selectivities=0.5", f"selectivities: 0.5 {NO_PAIR}"),
        ("selectivities=0=20000000", "selectivities: 20,000,000 rules are too many; write at most 10,000,000"),
        ("selectivities=1=3", "selectivities: a record has room for 2 consumers on average, not 3"),
        ("matching=loops", "matching: Input should be 'ranges' or 'hashes'"),
        (
            "matching=hashes",
            "matching: hashes would be computed for each record and each of 20,000 rules; have at most 1,000",
        ),
    ],
)
def test_senseless_rules_are_refused(given: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
        named(f"shufflebench:{given}")
    assert named("shufflebench:selectivities=0.5=2  1e-1=1,matching=hashes").parameters == {
        "selectivities": "0.5=2 1e-1=1", "matching": "hashes",
    }  # fmt: skip


def test_a_state_from_before_selectivities_is_continued() -> None:
    of = RuleMatch.model_validate({"kind": "rule_match", "rules": 9, "selectivity": 0.5, "values": {"n": "count"}})
    assert (of.selectivities, of.matching) == (None, None), "the identity of a state leaves out what is None"


@pytest.mark.parametrize("rate", [1, 4])
def test_an_engine_that_misses_a_match_is_found(rate: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(PARAMETERS, "shufflebench", {"rules": 40, "output_rate": rate})
    shape = workload_shape("shufflebench", monkeypatch)
    topics = Topics(named("shufflebench").model_copy(update=PARAMETERS["shufflebench"]))
    given = topics.workload.oracle(topics.inputs, 1)
    assert (given["kind"], given["rules"]) == ("rule_match", 40)
    whole, found = reported(topics, {**shape.inputs, **shape.outputs}, tmp_path / "whole")
    assert (whole.verdicts[whole.guarantee], found) == (Verdict.PASS, {}), whole.reasons
    heads = [bytes(record.value or b"")[:16] for of in shape.inputs.values() for record in of]
    matched = Counter(rule for head in heads for rule in matches(head, 40, 0.5, 0))
    assert rate == 1 or any(number % rate for number in matched.values())
    assert whole.contributions["processed"] == sum(number // rate * rate for number in matched.values())
    [stated] = [{struct.unpack_from(">q", record.value or b"")[0] for record in of} for of in shape.outputs.values()]
    assert {number % rate for number in stated} == {0}
    lossy, found = reported(topics, {**shape.inputs, **shape.lost}, tmp_path / "lossy")
    assert lossy.verdicts[lossy.guarantee] is Verdict.FAIL
    [((name, _), number)] = found.items()
    assert (name, number) == ("missing", rate)


def test_matches_have_the_configured_share() -> None:
    of = Matcher(Rules(20_000, 0.5).shares())
    hashes = np.array([komihash(struct.pack(">qq", 0, number), HASH_SEED) for number in range(20_000)], np.uint64)
    places, _ = of.of_all(hashes)
    assert len(places) / len(hashes) == pytest.approx(0.5, abs=0.02)


SETTINGS: Final[dict[str, Any]] = {
    "window": "10s", "events_per_window": 50, "limit": {"events": 3000}, "seed": 7,
    "workload": {"kind": "shufflebench", "rules": 30, "selectivity": 0.9},
}  # fmt: skip


def test_a_record_begins_with_its_id_and_names_the_consumers_that_the_engine_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [records] = sent(monkeypatch, SETTINGS)
    of = named("shufflebench").model_copy(update={"rules": 30, "selectivity": 0.9})
    decoder, several = wire.Decoder(of.streams[0], of=of), 0
    for number, (_, _, _, value) in enumerate(records, 1):
        assert (len(value), int.from_bytes(value[:8], "big")) == (1024, number)
        consumers = [name_of(rule) for rule in matches(value[:16], 30, 0.9, 0)]
        assert value[24:256].decode().split() == consumers
        events = decoder.records(number, value)
        found = [] if isinstance(events, wire.FilteredOut) else [event[1][0] for event in events or ()]
        assert found == consumers
        several += len(consumers) > 1
    assert several > 100


def test_a_record_has_the_size_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for size in (256, 300, 1024):
        of = {"kind": "shufflebench", "rules": 30, "record_bytes": size}
        [records] = sent(monkeypatch, {**SETTINGS, "limit": {"events": 200}, "workload": of})
        assert {len(record.value) for record in records} == {size}
        found[size] = [record.value[:256] for record in records]
    assert found[256] == found[300] == found[1024], "the size changes the filler only"


def test_a_result_is_a_consumers_state() -> None:
    of = named("shufflebench").model_copy(update={"state": 40})
    rows = [{"id": 7, "time": 30}, {"id": 9, "time": 20}]
    value = wire.values_bytes(Result(0, 0, ("consumer_1",), (7, 9), (30, 20)), rows, of)
    assert value == struct.pack(">qqqqq", 2, 16, 20, 30, 0)


def test_a_sum_is_modulo_2_to_the_64() -> None:
    members = {"count": 3, "sum": 3 * ((1 << 63) - 1), "start": 1, "end": 2}
    assert struct.unpack(">qqqq", state_bytes(members, 32)) == (3, (1 << 63) - 3, 1, 2)
