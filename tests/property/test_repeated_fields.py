"""Fields that results repeat: a batch decodes as its records do one at a time, and events as results do."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.property.test_plain_events import batch
from validator.codecs.batches import EventBatches, ResultBatches
from validator.codecs.columns import DECODED
from validator.codecs.one_record import RecordDecoder
from validator.codecs.plain_results import PlainResults
from validator.config.model import Input, Output
from validator.oracles.passthrough import Passthrough
from validator.oracles.seam import Reads
from validator.stream.decode import plain_events_of

pytestmark = [pytest.mark.property, pytest.mark.timeout(300)]

AMOUNTS: Final = ["1", "2", "10", "-3", "1.5", "1.50", "15e-1", "2.0", "0.1", "1e300", "12345678901234567890",
                  '"2"', '"x"',
                  '"é\\u0041"', "true", "null", None, "{}", "[1]", '""']  # fmt: skip
FIELDS: Final[dict[str, Any]] = {"key": "page", "event_time": {"path": "at", "unit": "ms"}}
ORACLE: Final = Passthrough.model_validate(
    {"kind": "passthrough", "values": {"amount": "same(amount)", "status": "same(of.status)"}}
).reading(Reads(evidence="values", names_ids=False))


def record(amount: str | None, status: str | None, other: str = "") -> bytes:
    """A record with these fields, as texts of JSON; None: the field is absent."""
    given = "" if amount is None else f'"amount":{amount},'
    of = "" if status is None else f'"status":{status}'
    return f'{{"page":"a",{given}"of":{{{of}}},"at":1767225600000{other}}}'.encode()


def decoders() -> tuple[RecordDecoder, RecordDecoder]:
    """Those of results and of events."""
    values = {name: name.replace("status", "of.status") for name in ORACLE.values}
    output = Output.model_validate({"topic": "o", "evidence": "values", "fields": {**FIELDS, "values": values}})
    topic = Input.model_validate({"topic": "i", "fields": FIELDS})
    return RecordDecoder(output, values=ORACLE.stated), RecordDecoder(topic, values=ORACLE.stated)


def rows(batches: EventBatches | ResultBatches, values: list[bytes]) -> list[tuple[bool, Any]]:
    """Whether each record decodes, and its values."""
    found = pa.Table.from_batches(list(batches(iter([batch([*values])])))).sort_by("offset").to_pylist()
    return [(row["status"] in (DECODED, None) and row["key"] is not None, row["values"]) for row in found]


def test_fields_are_read_the_same_alone_among_others_and_on_both_sides() -> None:
    of_results, of_events = decoders()
    plain = plain_events_of(Input.model_validate({"topic": "i", "fields": FIELDS}), ORACLE, "auto", None)
    chance, decoded, by_arrow = random.Random(5), 0, 0
    for number in (*[1] * 300, *[3] * 60, 800):
        pool = AMOUNTS if chance.random() < 0.5 else chance.sample(AMOUNTS, 3)
        values = [
            record(chance.choice(pool), chance.choice(pool), chance.choice(["", ',"x":1'])) for _ in range(number)
        ]
        alone = [row for value in values for row in rows(ResultBatches(of_results, ()), [value])]
        assert rows(ResultBatches(of_results, ()), values) == alone
        assert rows(EventBatches(of_events, plain, None), values) == alone
        assert rows(EventBatches(of_events, None, None), values) == alone
        by_arrow += sum(len(part.rows) for part in PlainResults(of_results, ()).read(batch([*values])))
        decoded += sum(is_decoded for is_decoded, _ in alone)
    assert decoded > by_arrow > 100


@pytest.mark.parametrize("number", ["7", "1.5", '"x"', "true"])
def test_arrow_reads_fields_of_one_type(number: str) -> None:
    of_results, _ = decoders()
    found = PlainResults(of_results, ()).read(batch([record(number, '"new"')] * 5))
    assert sum(len(part.rows) for part in found) == 5


def test_a_result_repeats_tuples_and_not_fields_alone() -> None:
    of_results, _ = decoders()

    def sums(*records: bytes) -> list[Decimal]:
        given = [row for _, row in rows(ResultBatches(of_results, ()), [*records])]
        return [sum(column) for column in zip(*given, strict=True)]

    mixed, swapped = sums(record("1", '"a"'), record("2", '"b"')), sums(record("1", '"b"'), record("2", '"a"'))
    assert mixed[0] == swapped[0]
    assert mixed[1] != swapped[1]
    assert sums(record("2", '"b"'), record("1", '"a"')) == mixed
    assert sums(record('"1.5"', '"a"')) == sums(record("15e-1", json.dumps("a")))
