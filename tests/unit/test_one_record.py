"""The decoder of one record against the standard library, and its messages for records that do not decode."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validator.codecs.one_record import (
    NULL_KEY,
    TOO_LARGE,
    Event,
    Record,
    RecordDecoder,
    Result,
    Tombstone,
    Undecodable,
)
from validator.codecs.times import FARTHEST_US, instant_of_text
from validator.config.model import Input, Late, Output
from validator.oracles.passthrough import Filter
from validator.oracles.tumbling_window import TumblingWindow

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NOON: Final = '"2026-01-01T12:00:00Z"'


def entry(**fields: object) -> Input:
    fields = {"id": "id", "key": "key", "event_time": "at", **fields}
    return Input.model_validate({"topic": "click", "fields": fields})


def output(**fields: object) -> Output:
    fields = {"key": "key", "window_start": "at", "ids": "ids", **fields}
    return Output.model_validate({"topic": "output", "fields": {k: v for k, v in fields.items() if v is not None}})


FLAT: Final = RecordDecoder(entry())


def value(id_: str = "7", key: str = '"a"', at: str = NOON, other: str = "") -> bytes:
    return f'{{"id": {id_}, "key": {key}, "at": {at}{other}}}'.encode("utf-8", "surrogatepass")


def event(raw: bytes | None, decoder: RecordDecoder = FLAT) -> Event:
    found = decoder.decode(Record(raw))
    assert isinstance(found, Event), found
    return found


def refusal(raw: bytes | None, decoder: RecordDecoder = FLAT) -> tuple[str | None, str]:
    found = decoder.decode(Record(raw))
    assert isinstance(found, Undecodable), found
    return found.field, found.reason


texts = st.text(st.characters(exclude_categories=["Cs"]))
others = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=8,
)


@settings(max_examples=40)
@given(
    id_=texts | st.integers(-(2**70), 2**70) | st.booleans(),
    key=texts | st.integers() | st.booleans(),
    other=st.dictionaries(texts.filter(lambda name: name not in ("id", "key", "at")), others),
    form=st.sampled_from([{}, {"ensure_ascii": False}, {"indent": "\t"}, {"separators": (",", ":")}]),
    around=st.tuples(st.text(" \t\r\n", max_size=3), st.text(" \t\r\n", max_size=3)),
)
def test_every_legal_record_decodes_to_its_values(
    id_: str | int, key: str | int, other: dict[str, Any], form: dict[str, Any], around: tuple[str, str]
) -> None:
    written = json.dumps({**other, "id": id_, "at": "2026-01-01T12:00:00Z", "key": key}, **form)
    raw = (around[0] + written + around[1]).encode("utf-8", "surrogatepass")
    try:
        raw.decode()
    except UnicodeDecodeError:
        # Half of a surrogate pair without an escape is not valid UTF-8.
        assert refusal(raw)[0] is None
        return
    found = event(raw)
    assert found.key == (json.dumps(key) if isinstance(key, (bool, int)) else key)
    as_text = json.dumps(id_) if isinstance(id_, (bool, int)) else id_
    try:
        number = int(as_text) if as_text.isascii() else None
    except ValueError:
        number = None
    canonical = number is not None and str(number) == as_text and -(2**63) <= number < 2**63
    assert found.id == (number if canonical else as_text)
    assert type(found.id) is (int if canonical else str)


@given(st.decimals(min_value=-(10**15), max_value=10**15, places=9), st.integers(-9, 9))
def test_equal_numbers_are_the_same_id(number: Any, shift: int) -> None:
    other_way = f"{number.scaleb(-shift):f}e{shift:+}"
    first, second = event(value(id_=f"{number:f}")), event(value(id_=other_way))
    assert first.id == second.id
    assert Fraction(first.id) == Fraction(number)


WHOLE: Final[dict[bytes | None, str]] = {
    b"": "has zero bytes",
    b" \n": "is white space only",
    b"click!": "is not JSON: expecting value at character 0",
    b"[1]": "is an array, not a JSON object",
    b"17": "is a number, not a JSON object",
    b"null": "is null, not a JSON object",
    b'"a"': "is a text, not a JSON object",
    value() + b" junk": "has content after its first JSON value, at character 51",
    value() + value(): "has content after its first JSON value, at character 51",
    b"\xef\xbb\xbf" + value(): "begins with a byte order mark",
    value().decode().encode("utf-16"): "is not UTF-8 text, at byte 0",
    value(other=',"x":"\xff"').replace(b"\xc3\xbf", b"\xff"): "is not UTF-8 text, at byte 56",
    value(id_='"\ud800"'): "is not UTF-8 text, at byte 8",
    value(other=',"x":NaN'): "is not JSON: it holds NaN",
    value(other=',"x":-Infinity'): "is not JSON: it holds -Infinity",
    value(other=',"x":01'): "is not JSON: expecting ',' delimiter at character 56",
    value(other=',"x":"\t"'): "is not JSON: invalid control character at at character 56",
    value(other=',"x":1/*one*/'): "is not JSON: expecting ',' delimiter at character 56",
    value(other=","): "is not JSON: expecting property name enclosed in double quotes at character 51",
    value().replace(b'"', b"'"): "is not JSON: expecting property name enclosed in double quotes at character 1",
    b"\xc2\xa0" + value(): "is not JSON: expecting value at character 0",
    value(other=',"x":' + "[" * 500 + "]" * 500): "is nested more than 500 levels deep",
    b"[" * 999: "is nested more than 500 levels deep",
    value(other=',"x":' + "1" * 1001): "holds a number of more than 1,000 characters",
    value(other=',"x":1.' + "1" * 1001): "holds a number of more than 1,000 characters",
}


@pytest.mark.parametrize("raw", WHOLE, ids=lambda raw: repr(raw)[:30])
def test_a_value_that_is_not_one_json_object_has_a_reason(raw: bytes | None) -> None:
    field, reason = refusal(raw)
    assert field is None
    if raw is None or not raw.startswith(b"["):
        assert reason.rpartition(" at ")[0] == WHOLE[raw].rpartition(" at ")[0]


FIELDS: Final = {
    value(id_="null"): ("id", "is null"),
    b'{"key": "a", "at": "2026-01-01"}': ("id", "is absent"),
    value(id_="[7]"): ("id", "is an array"),
    value(id_='{"id": 7}'): ("id", "is an object"),
    value(key='["a"]'): ("key", "is an array"),
    value(id_='"\\ud800"'): ("id", "holds half of a surrogate pair, which is not a character"),
    value(id_="1e1000000"): ("id", "is a number of more than 1,000 digits"),
    value(id_="1e-99999999999999999999"): ("id", "is a number of more than 1,000 digits"),
    value(other=', "id": 7'): ("id", "is ambiguous: the name 'id' occurs more than once in one object"),
    value(other=', "\\u0069d": 7'): ("id", "is ambiguous: the name 'id' occurs more than once in one object"),
    value(at="1767225600"): ("event_time", "is a number, and no unit is configured"),
    value(at="true"): ("event_time", "is a boolean"),
    value(at='"yesterday"'): ("event_time", "is a text that is not an ISO 8601 time"),
}


@pytest.mark.parametrize("raw", FIELDS)
def test_a_field_that_does_not_decode_is_named_with_its_reason(raw: bytes) -> None:
    assert refusal(raw) == FIELDS[raw]


def test_odd_and_legal_values_decode() -> None:
    deep = "[" * 499 + "]" * 499
    for other in (f',"x":{deep}', ',"x":' + "1" * 1000, ',"x":"' + "[" * 2000 + '"', ',"x":"' + "1" * 2000 + '"',
                  ',"x":{"id":1,"id":2}', ',"x":"\\ud800"', ',"ID":8', ',"x":1e999'):  # fmt: skip
        assert event(value(other=other)) == Event(7, "a", 1_767_268_800_000_000)
    assert [event(value(id_=f'"{text}"')).id for text in ("[1]", "[]", "{}", "NaN", "", "\\u0037", "1.0", "007")] == [
        "[1]", "[]", "{}", "NaN", "", 7, "1.0", "007"]  # fmt: skip
    assert [event(value(id_=number)).id for number in ("1.0", "-0", "1e3", "0.50", "-0.0", "9223372036854775808")] == [
        1, 0, 1000, "0.5", 0, "9223372036854775808"]  # fmt: skip
    assert event(value(id_='"\\ud83d\\ude00"', key="true")) == Event("\U0001f600", "true", 1_767_268_800_000_000)


def test_paths_go_through_objects_only() -> None:
    nested = RecordDecoder(entry(id="m.id"))
    assert event(value(other=',"m":{"id":1}'), nested).id == 1
    for other in (',"m":[{"id":1}]', ',"m":1', ',"m":null', "", ',"m.id":1'):
        assert refusal(value(other=other), nested) == ("id", "is absent")
    assert refusal(value(other=',"m":{"id":1},"m":{"id":1}'), nested)[0] == "id"


def test_ids_decode_by_their_type() -> None:
    raws = [value(id_=text) for text in ("7", '"7"', "7.0", '"a"', "9223372036854775808")]
    found = {kind: [RecordDecoder(entry(), kind).decode(Record(raw)) for raw in raws] for kind in ("integer", "string")}
    assert [item.id for item in found["string"] if isinstance(item, Event)] == ["7", "7", "7", "a", str(2**63)]
    assert [item.id if isinstance(item, Event) else None for item in found["integer"]] == [7, 7, 7, None, None]


def test_keys_of_several_fields_stay_distinct() -> None:
    two = RecordDecoder(entry(key=["key", "other"]))
    pairs = [('"a"', '"b"'), ('"a\\",\\"b"', '""'), ('"[\\"a\\""', '"b\\"]"'), ('""', '"a\\",\\"b"')]
    keys = [event(value(key=first, other=f', "other": {second}'), two).key for first, second in pairs]
    assert len(set(keys)) == len(keys)
    assert [json.loads(key) for key in keys] == [[json.loads(part) for part in pair] for pair in pairs]


def test_fields_may_be_parts_of_the_record() -> None:
    parts = RecordDecoder(entry(id="$header.id", key="$key", event_time="$timestamp"))
    record = Record(b"\x00 not looked at", b"k", [("id", b"1"), ("no", b"3"), ("id", b"2")], 5_000, 3, 4)
    assert parts.decode(record) == Event(2, "k", 5_000)
    undecodable = {
        "zero bytes": record._replace(value=b""),
        "a null value": record._replace(value=None),
        "no key": record._replace(key=None),
        "no header": record._replace(headers=[("ID", b"1")]),
        "a null header": record._replace(headers=[("id", b"1"), ("id", None)]),
        "bytes that are no text": record._replace(key=b"\xff"),
        "no timestamp": record._replace(timestamp_us=-1_000),
        "a timestamp after all times": record._replace(timestamp_us=FARTHEST_US + 1),
    }
    reasons = {name: parts.decode(changed) for name, changed in undecodable.items()}
    assert reasons == {
        "zero bytes": Undecodable(None, None, "has zero bytes"),
        "a null value": Undecodable(None, None, "is null"),
        "no key": Undecodable("key", "$key", "is null"),
        "no header": Undecodable("id", "$header.id", "is absent"),
        "a null header": Undecodable("id", "$header.id", "is null"),
        "bytes that are no text": Undecodable("key", "$key", "is not UTF-8 text, at byte 0"),
        "no timestamp": Undecodable("event_time", "$timestamp", "is absent"),
        "a timestamp after all times": Undecodable(
            "event_time", "$timestamp", "is a number too far from the epoch to be a time"
        ),
    }
    placed = RecordDecoder(entry(id="$offset", key="$partition", event_time={"path": "$key", "unit": "ms"}))
    assert placed.decode(Record(b"x", b"12.5", (), 0, 3, 4)) == Event(4, "3", 12_500)


def test_results_decode_in_each_form() -> None:
    results = {
        '{"key":"a","at":"1970-01-01","ids":[1,"2","x",true,3.0]}': Result("a", 0, ([1, 2, "x", "true", 3],)),
        '{"key":"a","at":"1970-01-01","ids":[]}': Result("a", 0, ([],)),
        '{"key":"a","at":"1970-01-01","ids":[1,2]} ': Result("a", 0, ([1, 2],)),
        '{"key":"a","at":"1970-01-01","ids":[9223372036854775808,-0]}': Result("a", 0, ([str(2**63), 0],)),
        '{"key":"a","at":"1970-01-01","ids":[1,null]}': Undecodable("ids", "ids", "has an item that is null"),
        '{"key":"a","at":"1970-01-01","ids":[[1]]}': Undecodable("ids", "ids", "has an item that is an array"),
        '{"key":"a","at":"1970-01-01","ids":"[1]"}': Undecodable("ids", "ids", "is a text, not an array of ids"),
        '{"key":"a","at":"1970-01-01","ids":null}': Undecodable("ids", "ids", "is null"),
    }
    assert {raw: RecordDecoder(output()).decode(Record(raw.encode())) for raw in results} == results
    assert RecordDecoder(output()).decode(Record(None)) == Tombstone()
    late = Late.model_validate({"topic": "late", "fields": {"id": "id", "key": "key", "event_time": "at"}})
    assert RecordDecoder(late).decode(Record(None)) == Undecodable(None, None, "is null")
    assert RecordDecoder(late).decode(Record(value())) == Event(7, "a", 1_767_268_800_000_000)


def test_results_decode_from_parts_of_the_record() -> None:
    topic = output(key="$key", window_start="$timestamp", window_end="end", ids=["$header.ids", "more"])
    record = Record(b'{"end":"1970-01-01T00:00:10","more":[3]}', b"a", [("ids", b' [1, "b"] ')], 5_000_000)
    assert RecordDecoder(topic, window_us=5_000_000).decode(record) == Result("a", 5_000_000, ([1, "b"], [3]))
    assert RecordDecoder(topic, window_us=6_000_000).decode(record) == Undecodable(
        "window_end", "end", "is not window_start plus the size of the window"
    )
    ends = output(key="$key", window_start=None, window_end="end", ids="more")
    assert RecordDecoder(ends, window_us=6_000_000).decode(record) == Result("a", 4_000_000, ([3],))
    assert RecordDecoder(ends, window_us=2**62 + 20_000_000).decode(record) == Undecodable(
        "window_end", "end", "is too early for the end of a window"
    )
    for header in (b"1", b"[1", b"", b"[1] 2", b"\xff"):
        found = RecordDecoder(topic).decode(record._replace(headers=[("ids", header)]))
        assert isinstance(found, Undecodable)
        assert found.field == "ids"


FORMS: Final = ["basic", "comma", "lower", "Z", "local", "compact", "named", "space", "spaced"]


def iso(at: datetime, zone: timedelta, form: str, digits: int, nanos: int) -> str:
    """``at`` with ``digits`` digits of a fraction, in a form that a common library writes."""
    local = at + zone
    sign = "-" if zone < timedelta(0) else "+"
    hours, minutes = divmod(abs(zone) // timedelta(minutes=1), 60)
    fraction = f"{local.microsecond:06}{nanos:03}"[:digits]
    basic = "basic" in form
    day = local.strftime("%Y%m%d" if basic else "%Y-%m-%d").rjust(8 if basic else 10, "0")
    clock = local.strftime("%H%M%S" if basic else "%H:%M:%S") + (("," if "comma" in form else ".") + fraction) * (
        digits > 0
    )
    if not zone:
        suffix = "z" if "lower" in form else "Z" if "Z" in form else "" if "local" in form else "+00:00"
    else:
        suffix = sign + (f"{hours:02}{minutes:02}" if "compact" in form else f"{hours:02}:{minutes:02}")
        suffix += "[Europe/Paris]" if "named" in form and not basic else ""
    if "spaced" in form and suffix and not basic:
        suffix = " " + suffix
    return day + (" " if "space" in form and not basic else "t" if "lower" in form else "T") + clock + suffix


@settings(max_examples=300)
@given(
    at=st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 30)),  # noqa: DTZ001  # UTC by the test's own definition
    zone=st.integers(-18 * 60, 18 * 60),
    form=st.lists(st.sampled_from(FORMS), max_size=4),
    digits=st.integers(0, 9),
    nanos=st.integers(0, 999),
)
def test_times_as_common_libraries_write_them_are_exact(
    at: datetime, zone: int, form: list[str], digits: int, nanos: int
) -> None:
    if digits < 6:
        unit = 10 ** (6 - digits)
        at = at.replace(microsecond=at.microsecond // unit * unit)
    wanted = (at.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    written = iso(at, timedelta(minutes=zone), " ".join(form), digits, nanos)
    assert instant_of_text(written) == wanted, written
    event_time = event(value(at=json.dumps(written))).event_time_us
    assert event_time == wanted


@given(st.datetimes(timezones=st.just(UTC) | st.just(timezone(timedelta(hours=5, minutes=30)))))
def test_json_written_by_python_decodes_as_python_reads_it(at: datetime) -> None:
    for timespec in ("auto", "hours", "minutes", "seconds", "milliseconds", "microseconds"):
        written = at.isoformat(timespec=timespec)
        assert instant_of_text(written) == (datetime.fromisoformat(written) - EPOCH) // timedelta(microseconds=1)
    assert instant_of_text(at.date().isoformat()) == (at.date() - EPOCH.date()).days * 86_400_000_000


DAY_2: Final = 86_400_000_000
ACCEPTED: Final = {
    "1970-01-02": DAY_2,
    "1970-01-02T00": DAY_2,
    "1970-01-02T00:00Z": DAY_2,
    "1970-01-01T24:00:00": DAY_2,
    "1970-01-01T24:00:00.000Z": DAY_2,
    "1970-01-02T00+05": DAY_2 - 18_000_000_000,
    "1970-01-02T00+05:30": DAY_2 - 19_800_000_000,
    "1970-01-02T00:00:00 UTC": DAY_2,
    "19700102T000000Z": DAY_2,
    "19700102T0000": DAY_2,
    "1970-01-02T00:00:00.000000999Z": DAY_2,
    "1969-12-31T23:59:59.999999999Z": -1,
    "0000-02-29T00:00:00": -62_162_121_600_000_000,
}
REFUSED: Final = {
    "2026-W01-1": "an ISO 8601 week date",
    "2026-001": "an ISO 8601 ordinal date",
    "+12026-01-01T00:00:00Z": "a year with a sign or with more than four digits",
    "2026-01": "a month without a day",
    "2026-1-1T00:00:00": "a month or a day with one digit",
    "2026-01-01T0:00:00": "a time of day or a zone offset in another form than hh:mm:ss.f and +hh:mm",
    "2026-01-01T00:00:00 ": "a time with white space around it",
    "\u00a02026-01-01T00:00:00" + "0" * 100: "a time with white space around it",
    "2026-01-01T00:00:00 Europe/Berlin": "a zone without an offset",
    "2026-01-01 00:00:00 +0000 UTC": "an offset with a zone name that is not in brackets",
    "2026-01-01 00:00:00.5 +0000 UTC m=+0.000012": "an offset with a zone name that is not in brackets",
    "2026-01-01 00:00:00 -0300 -03": "an offset with a zone name that is not in brackets",
    "2026-01-01T00:00:00+01:00 Europe/Paris": "an offset with a zone name that is not in brackets",
    "2026-01-01T00:00:00 GMT+01:00": "an offset with a zone name that is not in brackets",
    "2026-01-01T00:00:00 Etc/GMT+5": "a zone without an offset",
    "20260101T00": "a time in basic format without minutes",
    "20260101T00Z": "a time in basic format without minutes",
    "20260101t00+0100": "a time in basic format without minutes",
    "2026-01-01T00:00:00.1234567890": "a fraction of a second with more than nine digits",
    "12:00:00": "a time without a date",
    "1767225600000": "a number in quotes; it needs a unit in the configuration",
    "Thu, 01 Jan 2026 00:00:00 GMT": "a date with the name of a day or a month",
    "01/02/2026 10:00": "a date with slashes or dots",
    "2026-13-01T00:00:00": "a date that does not exist",
    "2026-01-01T23:59:60Z": "a time of day that does not exist (leap second)",
    "2026-01-01T24:00:00.5": "a time of day that does not exist",
    "2026-01-01T24:00:01": "a time of day that does not exist",
    "2026-01-01T00:00:00+19:00": "a zone offset that does not exist",
    "2026-01-01T00+05:30.5": "",
    "2026-01-01T00:00:00.": "",
    "2026-01-01T00:00.5": "",
    "20260101": "a date in basic format without a time",
    "20261301": "a number in quotes; it needs a unit in the configuration",
    "20260101Z": "a date with a zone and without a time",
    "2026-01-01Z": "a date with a zone and without a time",
    "2026-01-01T000000": "a mix of basic and extended format",
    "2026-01-01T0000Z": "a mix of basic and extended format",
    "20260101T00:00:00": "a mix of basic and extended format",
    "20260101T10:00Z": "a mix of basic and extended format",
    "0" * 300_000: "a text that is not an ISO 8601 time",
    "2026-01-01\n00:00:00": "",
    "\u0662026-01-01T00:00:00": "",
    "2026-01-01T00:00:00.\u0665": "",
    "": "",
}


def test_the_forms_of_iso_8601_decode() -> None:
    assert {text: instant_of_text(text) for text in ACCEPTED} == ACCEPTED
    for text, reason in REFUSED.items():
        found = instant_of_text(text)
        assert isinstance(found, str), text
        assert reason in found, (text, found)


def test_a_time_finer_than_a_microsecond_stays_on_its_side_of_every_boundary() -> None:
    second = 1_767_225_600_000_000
    times = {
        '"2026-01-01T00:00:00.000000001Z"': (None, second, second + 1),
        '"2026-01-01T00:00:00,123456001+00:00"': (None, second + 123_456, second + 123_457),
        '"2026-01-01T00:00:00.123456000Z"': (None, second + 123_456, second + 123_456),
        '"2025-12-31T23:59:59.999999999Z"': (None, second - 1, second),
        '"1969-12-31T23:59:59.9999999"': (None, -1, 0),
        "1767225600000000001": ("ns", second, second + 1),
        "1767225600000000000": ("ns", second, second),
        "-1": ("ns", -1, 0),
        '"1767225600.0000001"': ("s", second, second + 1),
        "1767225600.000000": ("s", second, second),
        "1e-900": ("us", 0, 1),
        "-1e-900": ("us", -1, 0),
        "1e-99999999999999999999": ("us", 0, 1),
        "-0.0e99999999999999999999": ("s", 0, 0),
    }
    for at, (unit, down, up) in times.items():
        timed = entry(event_time={"path": "at", **({"unit": unit} if unit else {})})
        for window, wanted in ((TumblingWindow.of(10, 0), down), (TumblingWindow.of(10, 0, closed="right"), up)):
            decoder = RecordDecoder(timed, rounding=window.rounding)
            assert event(value(at=at), decoder).event_time_us == wanted, (at, window)


def test_zero_with_any_exponent_is_zero() -> None:
    for zero in ("0e99999999999999999999", "-0.00E-99999999999999999999", "0e0", "0"):
        assert event(value(id_=zero)).id == 0


units = st.sampled_from([("s", 10**6), ("ms", 10**3), ("us", 1), ("ns", Fraction(1, 1000))])


@given(
    unit=units,
    number=st.integers(-(2**63), 2**63 - 1) | st.fractions(max_denominator=10**6).map(Fraction),
    quoted=st.booleans(),
    exponent=st.integers(-12, 12) | st.none(),
)
def test_numeric_times_are_exact(
    unit: tuple[str, int | Fraction], number: Fraction | int, quoted: bool, exponent: int | None
) -> None:
    written = str(number) if isinstance(number, int) else f"{float(number):.17f}"
    written += f"e{exponent}" if exponent is not None else ""
    exact = Fraction(written) * unit[1]
    wanted = exact.numerator // exact.denominator
    decoder = RecordDecoder(entry(event_time={"path": "at", "unit": unit[0]}))
    found = decoder.decode(Record(value(at=f'"{written}"' if quoted else written)))
    if abs(wanted) > FARTHEST_US:
        assert isinstance(found, Undecodable)
    else:
        assert isinstance(found, Event), found
        assert found.event_time_us == wanted


SIZE: Final = 300_000
DEEP: Final = b'{"x":[' + b"[]," * 501
RESULTS: Final = RecordDecoder(output())
SECONDS: Final = RecordDecoder(entry(event_time={"path": "at", "unit": "s"}))
LARGE: Final = {
    "names, one of them twice": (value(other="".join(f', "n{n}": 1' for n in range(SIZE // 13)) + ', "n0": 2'), FLAT),
    "one name again and again": (value(other=', "n": 1' * (SIZE // 8)), FLAT),
    "white space in a time": (value(at=f'"x{" " * SIZE}y"'), FLAT),
    "white space around a time": (value(at=f'"{" " * SIZE}y{" " * SIZE}"'), FLAT),
    "white space in a quoted number": (value(at=f'"1{" " * SIZE}y"'), SECONDS),
    "digits in a time": (value(at=f'"{"1" * SIZE}x"'), FLAT),
    "digits in a fraction": (value(at=f'"2026-01-01T00:00:00.{"1" * SIZE}x"'), FLAT),
    "a zone in brackets": (value(at=f'"2026-01-01T00:00:00+01:00[{"x" * SIZE}]"'), FLAT),
    "a zone in brackets without an end": (value(at=f'"2026-01-01T00:00:00+01:00[{"x" * SIZE}"'), FLAT),
    "a text of escaped quotes without an end": (DEEP + b'"' + rb"\"" * (SIZE // 2), FLAT),
    "a text of escapes without an end": (DEEP + b'"' + rb"\\" * (SIZE // 2) + b"\\", FLAT),
    "quotes": (DEEP + b'"' * SIZE, FLAT),
    "texts": (DEEP + b'"",' * (SIZE // 3), FLAT),
    "brackets": (b'{"x":' + b"[" * SIZE, FLAT),
    "brackets in a text": (value(other=f', "x": "{"[{" * (SIZE // 2)}"'), FLAT),
    "objects": (value(other=f', "x": [{"{}," * (SIZE // 3)}0]'), FLAT),
    "a long number": (value(id_="1" * SIZE), FLAT),
    "numbers": (value(other=f', "x": [{("1" * 1_000 + ",") * (SIZE // 1_001)}0]'), FLAT),
    "small numbers": (value(other=f', "x": [{"1," * (SIZE // 2)}0]'), FLAT),
    "white space": (b"{" + b" " * SIZE + b"}" + b" " * SIZE + b"x", FLAT),
    "ids with an exponent": (b'{"key": 1, "at": "2026-01-01", "ids": [' + b"1e999," * (SIZE // 6) + b"0]}", RESULTS),
    "ids of many digits": (
        b'{"key": 1, "at": "2026-01-01", "ids": [' + (b"9" * 1_000 + b",") * (SIZE // 1_001) + b"0]}",
        RESULTS,
    ),
    "what stands for a large value": (TOO_LARGE + b"9" * SIZE, FLAT),
}


@pytest.mark.parametrize("shape", LARGE)
def test_decoding_takes_time_in_proportion_to_the_record(shape: str) -> None:
    raw, decoder = LARGE[shape]
    began = time.process_time()
    decoder.decode(Record(raw))
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("where", "holds", "fails", "odd"),
    [
        (
            {"one_of": [1, "paid", True, 0.5]},
            ["1", "1.0", '"1"', "true", '"true"', "5e-1"],
            ["2", '"Paid"', "false"],
            [],
        ),
        (
            {"at_least": 10},
            ["10", "10.0", '"10"', "1e1", "1e300"],
            ["9.999999999999999999999", '"-1"'],
            ["true", '"x"'],
        ),
        ({"at_least": "0.1", "below": 5}, ["0.1", "4.9"], ["5", "0.09999999999999999999"], ['"0x1"', '" 1"', '"1_0"']),
        ({"above": 1, "at_most": 5}, ["1.000000000000000000001", "5.0"], ["1", "5.000000000000000000001"], ['"x"']),
        ({"equals": True}, ["true", '"true"'], ["false", "1"], []),
        ({"matches": "a.d|^2"}, ['"paid"', '"  aid"', "2.5", '"20"'], ['"ad"', "12", "true"], []),
    ],
)
def test_a_condition_holds_for_values_as_keys_are_compared(
    where: dict[str, Any], holds: list[str], fails: list[str], odd: list[str]
) -> None:
    oracle = Filter.model_validate({"kind": "filter", "where": {"path": "of.it", **where}})
    decoder = RecordDecoder(entry(), condition=oracle.condition)

    def said(it: str) -> Event | Undecodable:
        found = decoder.decode(Record(value(other=f', "of": {{"it": {it}}}')))
        assert isinstance(found, Event | Undecodable)
        return found

    assert {it: said(it) for it in holds} == dict.fromkeys(holds, event(value()))
    assert {it: said(it) for it in fails} == dict.fromkeys(fails, event(value())._replace(is_owed=False))
    for it in ("null", "{}", "[1]", '"\\ud800"', *odd):
        found = said(it)
        assert isinstance(found, Undecodable), it
        assert (found.field, found.path) == ("where", "of.it")
    assert decoder.decode(Record(value())) == Undecodable("where", "of.it", "is absent")


def test_a_result_may_name_the_time_of_its_event() -> None:
    fields = {"key": "key", "id": "id", "event_time": {"path": "at", "unit": "ms"}}
    timed = Output.model_validate({"topic": "output", "evidence": "id", "fields": fields})
    found = RecordDecoder(timed).decode(Record(value(at="1500")))
    assert found == Result("a", 1_500_000, ([7],))
    assert RecordDecoder(timed).decode(Record(value(at="null"))) == Undecodable("event_time", "at", "is null")
    stamped = output(window_start=None, event_time="$timestamp")
    assert RecordDecoder(stamped).decode(Record(b'{"key": "a", "ids": []}', timestamp_us=7)) == Result("a", 7, ([],))


def cumulative(key: object) -> RecordDecoder:
    fields = {"key": key, "ids": "ids"}
    return RecordDecoder(Output.model_validate({"topic": "output", "emission": "cumulative", "fields": fields}))


def test_an_absent_key_means_what_is_declared() -> None:
    records = [value(key="null"), f'{{"id": 7, "at": {NOON}}}'.encode(), value(key='"[null]"'), value(key="[]")]
    time_us = 1_767_268_800_000_000
    wanted = {
        "undecodable": [("key", "is null"), ("key", "is absent"), Event(7, NULL_KEY, time_us), ("key", "is an array")],
        "owed": [*[Event(7, NULL_KEY, time_us)] * 2, ("key", "is the text that stands for an absent key"),
                 ("key", "is an array")],
    }  # fmt: skip
    wanted["skip"] = [
        one._replace(is_owed=False, is_skipped=True) if isinstance(one, Event) else one for one in wanted["owed"]
    ]
    for missing, found in wanted.items():
        decoder = RecordDecoder(entry(), missing_key=missing)
        assert [refusal(raw, decoder) if isinstance(one, tuple) and len(one) == 2 else event(raw, decoder)
                for raw, one in zip(records, found, strict=True)] == found  # fmt: skip
    both = RecordDecoder(entry(key=["$key", "key"]), missing_key="owed")
    assert both.decode(Record(value())) == Event(7, '[null,"a"]', time_us)
    # What it takes to be an event is still needed, and the path must lead through objects.
    assert refusal(value("null", key="null"), RecordDecoder(entry(), missing_key="skip")) == ("id", "is null")
    nested = RecordDecoder(entry(key="key.name"), missing_key="skip")
    assert refusal(value(key="7"), nested) == ("key", "is absent")
    assert event(value(key="null"), nested).is_skipped


def test_a_null_value_of_an_input_is_no_event_if_the_value_has_the_id() -> None:
    assert RecordDecoder(entry()).decode(Record(None)) == Tombstone()
    stamped = RecordDecoder(entry(event_time="$timestamp"))
    assert stamped.decode(Record(None, timestamp_us=7)) == Tombstone(None, 7)
    in_record = entry(id="$key", event_time="$timestamp")
    assert RecordDecoder(in_record).decode(Record(None, b"k")) == Undecodable(None, None, "is null")
    for tombstone, wanted in (("ignore", Tombstone(None, 7)), ("undecodable", Undecodable(None, None, "is null"))):
        declared = in_record.model_copy(update={"tombstone": tombstone})
        assert RecordDecoder(declared).decode(Record(None, b"k", timestamp_us=7)) == wanted


def test_every_field_that_does_not_fit_is_named() -> None:
    record = Record(b'{"key": [], "at": "01-01-2026"}')
    assert FLAT.problems(record) == (
        Undecodable("id", "id", "is absent"),
        Undecodable("key", "key", "is an array"),
        Undecodable("event_time", "at", "is a text that is not an ISO 8601 time"),
    )
    assert [one.value for one in FLAT.problems(record)] == [None, None, "01-01-2026"]
    assert FLAT.problems(Record(value())) == ()
    assert FLAT.problems(Record(b"[")) == (FLAT.decode(Record(b"[")),)


def test_a_tombstone_withdraws_the_result_of_the_key_that_its_record_names() -> None:
    assert cumulative("$key").decode(Record(None, b"a")) == Tombstone("a")
    both = cumulative(["$header.tenant", "$key"])
    assert both.decode(Record(None, b"a", [("tenant", b"t")])) == Tombstone('["t","a"]')
    # The key is unknown.
    assert both.decode(Record(None, b"a")) == Tombstone(None)
    assert cumulative("$key").decode(Record(None, None)) == Tombstone(None)
    assert cumulative("$key").decode(Record(None, b"\xff")) == Tombstone(None)
    assert cumulative(["$key", "page"]).decode(Record(None, b"a")) == Tombstone(None)
    added_up = {"topic": "output", "fields": {"key": "$key", "ids": "ids"}}
    assert RecordDecoder(Output.model_validate(added_up)).decode(Record(None, b"a")) == Tombstone(None)


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ({"path": "a", "exists": True}, {"{}": False, '{"a": null}': False, '{"a": [1]}': True, '{"a": 0}': True}),
        (
            {"path": "a.b", "exists": False},
            {"{}": True, '{"a": {}}': True, '{"a": {"b": {}}}': False, '{"a": 1}': None},
        ),
        (
            {"all": [{"path": "a", "equals": 1}, {"path": "b", "equals": 2}]},
            {'{"a": 1, "b": 2}': True, '{"a": 2}': False, '{"b": 1}': False, '{"a": 1}': None, '{"a": {}}': None},
        ),
        (
            {"any": [{"path": "a", "equals": 1}, {"path": "b", "equals": 2}]},
            {'{"a": 1}': True, '{"a": 3, "b": 2}': True, '{"a": 3}': None, '{"a": 3, "b": 4}': False},
        ),
        (
            {"not": {"any": [{"path": "a", "above": 1}, {"not": {"path": "b", "one_of": [2]}}]}},
            {'{"a": 1, "b": 2}': True, '{"a": 2}': False, '{"b": 3}': False, '{"b": 2}': None},
        ),
    ],
)
def test_what_is_not_known_decides_nothing_where_others_decide(
    where: dict[str, Any], holds: dict[str, bool | None]
) -> None:
    """As in SQL. None: the record is undecodable."""
    oracle = Filter.model_validate({"kind": "filter", "where": where})
    decoder = RecordDecoder(entry(), condition=oracle.condition)
    for text, wanted in holds.items():
        found = decoder.decode(Record(value(other=f", {text[1:-1]}" if text != "{}" else "")))
        assert isinstance(found, Event | Undecodable)
        assert (found.is_owed if isinstance(found, Event) else None) is wanted, text
        assert isinstance(found, Event) or found.field == "where"
