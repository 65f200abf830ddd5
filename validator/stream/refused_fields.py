"""What does not decode in a record, and what to do about it, as clauses for reasons of a verdict and for `doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from validator.codecs.one_record import Undecodable
from validator.config.model import Publish

_VALUE_SHOWN: Final = 60
_NULL: Final = ("is absent", "is null")
"""The reasons of a field without a value."""


def said(problems: Sequence[Undecodable], publish: Publish) -> str:
    """Return every field that does not fit the record, and why. A value is shown only if ids and keys are published as
    they are: a field of the wrong name may hold one of these."""
    shows = publish.ids == publish.keys == "plain"
    return " and ".join(_said(one, shows_value=shows) for one in problems)


def _said(one: Undecodable, *, shows_value: bool) -> str:
    path = f" (path {one.path})" if one.path is not None else ""
    subject = "its value" if one.field is None else f"field {one.field}{path}"
    if one.value is None or not shows_value:
        return f"{subject} {one.reason}"
    value = one.value if len(one.value) <= _VALUE_SHOWN else f"{one.value[:_VALUE_SHOWN]}..."
    return f'{subject} {one.reason} ("{value}")'


def settings(place: str, problems: Sequence[Undecodable]) -> str:
    """Return the settings of the topic at ``place``, such as ``inputs[0]``, that the ``problems`` concern."""
    return " and ".join(dict.fromkeys(_setting(place, one) for one in problems)) or f"{place}.fields"


def _setting(place: str, one: Undecodable) -> str:
    # The condition of events is a setting of the oracle.
    if one.field == "where":
        return f"{place}.where" if place.startswith("outputs[") else "oracle.where"
    if one.field == "envelope":
        return f"{place}.envelope"
    return f"{place}.fields" if one.field is None else f"{place}.fields.{one.field}"


def next_step(place: str, problems: Sequence[Undecodable]) -> str:
    """Return what to do if some records of the topic at ``place`` decode, and others do not."""
    steps = [*dict.fromkeys(_steps(place, problems))]
    return " and ".join(steps) if steps else f"check {settings(place, problems)}"


def _steps(place: str, problems: Sequence[Undecodable]) -> Iterator[str]:
    of_input = place.startswith("inputs[")
    for one in problems:
        if of_input and one.field == "key" and one.reason in _NULL:
            yield (
                f"if events without a key are expected, set {place}.missing_key to `skip` (they owe no result) or "
                "`owed` (null is a key), with a new state.path"
            )
        elif of_input and one.field is None and one.reason == "is null":
            yield f"if null values are not events, set {place}.tombstone to `ignore`, with a new state.path"
        elif one.field == "envelope" and (one.path or "").endswith("before"):
            yield (
                "let the source write the row before a change (in PostgreSQL: REPLICA IDENTITY FULL), or leave delete "
                f"out of {place}.operations"
            )
        elif one.field == "envelope" and one.reason in _NULL:
            of_each = "debezium_with_schema if values have a `payload`, debezium if they have none"
            yield f"check {place}.envelope ({of_each})"
