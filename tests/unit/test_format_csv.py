"""Lines of CSV against Python's csv module: an independent reader and writer of RFC 4180."""

from __future__ import annotations

import csv
import io
import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validator.codecs.one_record import Event, Record, RecordDecoder, Result, Undecodable
from validator.settings.formats.csv import Csv
from validator.settings.formats.kinds import built
from validator.settings.formats.seam import Unreadable
from validator.settings.topics import Input, Output

pytestmark = pytest.mark.unit

FORMAT = {"kind": "csv", "columns": ["id", "page", "at"], "delimiter": ";", "list_delimiter": "|"}
AT = {"path": "at", "unit": "ms"}
EVENTS = RecordDecoder(
    Input.model_validate({"topic": "i", "format": FORMAT, "fields": {"id": "id", "key": "page", "event_time": AT}})
)
RESULTS = RecordDecoder(
    Output.model_validate({"topic": "o", "format": FORMAT, "fields": {"ids": "id", "key": "page", "window_start": AT}})
)
texts = st.text(st.sampled_from('a1;,"\n\r |é'), max_size=6)


@given(
    fields=st.lists(texts, min_size=1, max_size=4),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    ending=st.sampled_from(["", "\n", "\r\n"]),
    delimiter=st.sampled_from([",", ";"]),
)
@settings(max_examples=500, deadline=None)
def test_csv_written_by_python_is_read_unchanged(fields: list[str], quoting: Any, ending: str, delimiter: str) -> None:
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter, quoting=quoting, lineterminator="\r\n").writerow(fields)
    line = file.getvalue().removesuffix("\r\n") + ending
    columns = tuple(f"c{number}" for number in range(len(fields)))
    found = Csv(columns=columns, delimiter=delimiter, list_delimiter="|").reader("value", {}).value(line.encode())
    # Python quotes an empty text only where necessary. Without quotes it is read as null.
    assert [found[column] or "" for column in columns] == fields
    assert quoting is csv.QUOTE_MINIMAL or None not in found.values()


@given(line=texts)
@settings(max_examples=500, deadline=None)
def test_python_reads_decoded_csv_alike(line: str) -> None:
    for columns in (("a",), ("a", "b"), ("a", "b", "c")):
        try:
            found = Csv(columns=columns).reader("value", {}).value(line.encode())
        except Unreadable:
            continue
        rows = list(csv.reader(io.StringIO(line, newline=""), strict=True)) or [[]]
        assert [[text or "" for text in found.values()]] == [row or [""] for row in rows]


@given(lines=st.lists(st.one_of(texts, texts.map(lambda text: f"1;{text}|b;c")), max_size=6))
@settings(max_examples=500, deadline=None)
def test_batches_of_lines_are_read_as_single_ones(lines: list[str]) -> None:
    read = Csv.model_validate({"columns": ["a", "b", "c"], "delimiter": ";", "list_delimiter": "|"}).reader("value", {})
    columns = read.read_columns(pa.array([line.encode() for line in lines], pa.binary()), [("a",), ("c",)], [("b",)])
    assert columns is not None
    for number, line in enumerate(lines):
        cells = {name: columns[name,][number].as_py() for name in "abc"}
        try:
            found = read.value(line.encode())
        except Unreadable:
            assert set(cells.values()) == {None}
            continue
        wanted = {**found, "b": found["b"] and read.items(found["b"])}
        for name, cell in cells.items():
            assert cell is None or cell == wanted[name]
        if not set(line) & set('"\r\n\ufeff'):
            assert all(cells[name] == (wanted[name] or None) for name in "ac")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"7;/a", (None, "has 2 fields, and 3 columns are configured")),
        (b"7;/a;1;", (None, "has 4 fields, and 3 columns are configured")),
        (b"7;/a;1\n8;/a;1", (None, "has more than one line")),
        (b'"7";/a;1\r8', (None, "has more than one line")),
        (b'7;"/a"b;1', (None, "has a misplaced quote in field 2")),
        (b'7;b"/a";1', (None, "has a misplaced quote in field 2")),
        (b'7;"/a;1', (None, "has a misplaced quote in field 2")),
        (b"7;\xff;1", (None, "is not UTF-8 text, at byte 2")),
        (b"\xef\xbb\xbf7;/a;1", (None, "begins with a byte order mark")),
        (b";/a;1", ("id", "is null")),
        (b"7;;1", ("page", "is null")),
        (b"7;/a;", ("at", "is null")),
        (b"7;/a; 1", ("at", "is a text that is not a number")),
    ],
)
def test_an_undecodable_line_has_a_reason(value: bytes, said: tuple[str | None, str]) -> None:
    found = EVENTS.decode(Record(value))
    assert isinstance(found, Undecodable)
    assert (found.path, found.reason) == said


def test_ids_keys_and_times_decode_from_their_characters() -> None:
    decoder = pickle.loads(pickle.dumps(EVENTS))
    assert decoder.decode(Record(b"7;/a;1.5\r\n")) == Event(7, "/a", 1500)
    assert decoder.decode(Record(b'"";"a;""b""";-1')) == Event("", 'a;"b"', -1000)
    assert decoder.decode(Record(b"007;\xc3\xa9;0")) == Event("007", "é", 0)


def test_a_list_is_in_one_field() -> None:
    assert RESULTS.decode(Record(b"7|x|8;/a;0")) == Result("/a", 0, ([7, "x", 8],))
    assert RESULTS.decode(Record(b'"";/a;0')) == Result("/a", 0, ([],))
    assert RESULTS.decode(Record(b";/a;0")) == Undecodable("ids", "id", "is null")


def test_every_format_is_registered_and_documented() -> None:
    assert list(built()) == ["json", *sorted(built().keys() - {"json"})]
    assert all(one.__doc__ for one in built().values())
