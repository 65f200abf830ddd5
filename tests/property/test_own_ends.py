"""The own ends of left events (`oracle.until`): Arrow decodes them as the rule does, whatever their form."""

from __future__ import annotations

import random
from typing import Final

import pytest

from tests.property.test_plain_events import batch
from validator.codecs.columns import DECODED
from validator.codecs.one_record import Event, Record, Undecodable
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.stream.decode import event_reader

pytestmark = pytest.mark.property

FORMS: Final = {
    "{path: until, unit: ms}": ("1767225600000", "0", '"1767225600001"', "-5"),
    "{path: until, unit: ns}": ("1767225600000000001", "-1", '"7"'),
    "until": ('"2026-01-01T00:00:00Z"', '"2026-01-01T00:00:00.123"', '"2026-01-01 01:00:00+01:00"'),
    '{path: until, pattern: "dd.MM.yyyy HH:mm"}': ('"01.01.2026 00:00"', '"31.12.2025 23:59"'),
}
ODD: Final = ("null", "1.5", '"x"', "[]", "true", "99999999999999999999999", '""')
RECORDS: Final = 400


@pytest.mark.parametrize("form", FORMS)
def test_arrow_decodes_what_the_rule_decodes(form: str) -> None:
    chance = random.Random(form)
    oracle = "{kind: interval_join, join: inner, left: click, right: update, after: 1h, until: %s}"
    fields = "{key: page, event_time: t, ids: [{path: c, input: click}, {path: u, input: update}]}"
    given = [f"oracle={oracle % form}", f"outputs.0.fields={fields}"]
    settings = loads(EXAMPLES["join"], ".", given, {})
    reader = event_reader(settings.inputs[0], settings.oracle.seen_from("click"), 0, "auto")
    values = []
    for number in range(RECORDS):
        end = chance.choice(ODD if chance.random() < 0.1 else FORMS[form])
        until = "" if chance.random() < 0.02 else f',"until":{end}'
        values.append(f'{{"id":{number},"page":"p","timestamp":"2026-01-01T00:00:00Z"{until}}}'.encode())
    got = {}
    for part in reader.batches(iter([batch(values)])):
        for row in part.to_pylist():
            is_event = row["status"] in (None, DECODED) and row["event_time_us"] is not None
            got[row["offset"]] = row["values"] if is_event else None
    kinds = set()
    for offset, value in enumerate(values):
        found = reader.decoder.decode(Record(value, timestamp_us=5, offset=offset))
        assert got[offset] == (list(found.addends) if isinstance(found, Event) else None), value
        kinds.add(type(found))
    assert kinds == {Event, Undecodable}


def test_a_late_event_needs_no_end_of_its_own() -> None:
    oracle = "{kind: interval_join, join: inner, left: click, right: update, after: 1h, until: expires}"
    fields = "{key: page, event_time: t, ids: [{path: c, input: click}, {path: u, input: update}]}"
    settings = loads(EXAMPLES["join"], ".", [f"oracle={oracle}", f"outputs.0.fields={fields}"], {})
    late = event_reader(settings.late[0], settings.oracle.seen_from("click"), 0, "auto")
    value = b'{"clickId":7,"page":"p","clickTimestamp":"2026-01-01T00:00:00Z"}'
    assert isinstance(late.decoder.decode(Record(value)), Event)
