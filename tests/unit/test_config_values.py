"""Durations, paths, starts and options: from the user's text to the values in the core."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from validator.config.options import Options
from validator.config.start import Start, format_start, parse_start
from validator.settings.durations import LONGEST_US, format_duration, parse_duration
from validator.settings.fields import FieldPath, check_path

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [("0", 0), (0, 0), ("500ms", 500_000), ("1.5h", 5_400_000_000), (" 30 s ", 30_000_000), ("7d", 604_800_000_000)],
)
def test_a_duration_is_whole_microseconds(text: object, microseconds: int) -> None:
    assert parse_duration(text) == microseconds


@pytest.mark.parametrize(
    "text", ["30", 30, 1.5, True, None, "-1s", "1 week", "s", "0.0001ms", "36501d", "1e3s", ["1s"]]
)
def test_an_invalid_duration_is_refused(text: object) -> None:
    with pytest.raises(PydanticCustomError):
        parse_duration(text)


@given(st.integers(0, LONGEST_US))
def test_a_formatted_duration_reads_back(microseconds: int) -> None:
    assert parse_duration(format_duration(microseconds)) == microseconds


@pytest.mark.parametrize(
    "path", ["id", "a.b.c", "$key", "$timestamp", "$offset", "$partition", "$header.trace-id", "a b"]
)
def test_a_path_is_dotted_names_or_a_part_of_the_record(path: str) -> None:
    assert check_path(path) == path
    assert FieldPath.model_validate(path) == FieldPath(path=path)


@pytest.mark.parametrize(
    "path", ["", ".", "a.", ".a", "a..b", "$value.", "$key..id", "$timestamp.id", "$header.", "a.$key"]
)
def test_an_invalid_path_is_refused(path: str) -> None:
    with pytest.raises(PydanticCustomError):
        check_path(path)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Start(kind="earliest")),
        ("latest", Start(kind="latest")),
        ("group:my-engine", Start(kind="group", group="my-engine")),
        ("1970-01-01T00:00:00.000001Z", Start(kind="time", time_us=1)),
        ("2026-01-31T13:00:00+01:00", Start(kind="time", time_us=1_769_860_800_000_000)),
    ],
)
def test_a_start_is_parsed_and_reads_back(text: str, start: Start) -> None:
    assert parse_start(text) == start
    assert parse_start(format_start(start)) == start


@pytest.mark.parametrize("text", ["", "newest", "group:", "2026-01-31", "2026-01-31T12:00:00", 5, None])
def test_an_invalid_start_is_refused(text: object) -> None:
    with pytest.raises(PydanticCustomError):
        parse_start(text)


def test_secrets_are_hidden_in_every_text_and_kept_as_values() -> None:
    options = Options({"sasl.password": "hunter2", "sasl.jaas.config": "x hunter2", "security.protocol": "SSL"})
    for text in (repr(options), str(options), f"{options}", str({"options": options})):
        assert "hunter2" not in text
        assert "SSL" in text
    assert options["sasl.password"] == "hunter2"
