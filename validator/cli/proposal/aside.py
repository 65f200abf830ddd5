"""The fields of late and rejected topics: those that equal the fields of the events of an input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from validator.cli.proposal.columns import Columns, TopicSample, columns_of
from validator.cli.proposal.times import Time
from validator.model.schemas import Schemas
from validator.settings.formats.guesses import ENOUGH

_POSITIONS: Final = ("kafka_dlt-original-", "__connect.errors.")
"""Prefixes of the headers in which Spring Kafka and Kafka Connect name the original record."""


def set_aside(
    inputs: Sequence[Columns],
    topics: Mapping[str, Sequence[TopicSample]],
    document: Mapping[str, Any],
    schemas: Schemas,
) -> tuple[dict[str, Any], list[str]]:
    """Return the parts `late` and `rejected` of a file, and doubts. ``topics``: part -> its topics. ``document``: the
    rest of the file."""
    found: dict[str, Any] = {}
    doubts = []
    for part, of_part in topics.items():
        for one in of_part:
            # Dead letters may not decode, so their format cannot be recognised.
            likes = (columns_of(one, schemas, like) for like in (None, *inputs))
            entry = next(filter(None, (_best_entry(inputs, columns, document) for columns in likes)), None)
            if entry is None:
                doubts.append(f"No record of {one.topic} has the fields of an input's event: add it below {part}.")
            else:
                position = _position(one) if part == "rejected" else {}
                fields = {**entry.pop("fields"), **position}
                found.setdefault(part, []).append({**entry, "fields": fields})
    return found, doubts


def _best_entry(inputs: Sequence[Columns], one: Columns, document: Mapping[str, Any]) -> dict[str, Any] | None:
    found = []
    for events, entry in zip(inputs, document["inputs"], strict=True):
        at = entry["fields"]
        keys = [at["key"]] if isinstance(at["key"], str) else list(at["key"])
        time = next(it for it in events.times if it.setting == at["event_time"])
        found += list(_entries(events, one, at.get("id"), keys, time))
    if not found:
        return None
    _, topic, fields = max(found, key=lambda it: it[0])
    # With id spaces of their own, each set-aside topic belongs to one input.
    has_spaces = any(isinstance(path, dict) for path in _ids(document))
    formats = {name: value for name, value in _formats(one, fields).items() if value is not None}
    return {"topic": one.topic, **({"input": topic} if has_spaces else {}), **formats, "fields": fields}


def _ids(document: Mapping[str, Any]) -> Sequence[Any]:
    ids = document["outputs"][0]["fields"].get("ids", ())
    return ids if isinstance(ids, list) else [ids]


def _formats(one: Columns, fields: Mapping[str, Any]) -> dict[str, Any]:
    uses_key = "$key" in str(fields)
    return {
        "format": None if one.format == "json" else one.format,
        "key_format": None if one.key_format == "text" or not uses_key else one.key_format,
    }


def _entries(
    events: Columns, one: Columns, id_: str | None, keys: Sequence[str], time: Time
) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield the fields of set-aside records that may be events of this input, with the number of their matches."""
    wanted = [*([id_] if id_ is not None else []), *keys]
    known = [{text for text in events.texts[path] if text is not None} for path in wanted]
    fields: list[str] = []
    for path, values in zip(wanted, known, strict=True):
        hits = {name: sum(text in values for text in texts if text is not None) for name, texts in one.texts.items()}
        best = max(hits, key=lambda name: (hits[name], _likeness(name, path)), default=None)
        if best is None or not hits[best] or hits[best] < ENOUGH * max(hits.values()):
            return
        fields.append(best)
    rows = set(zip(*(events.texts[path] for path in wanted), time.instants, strict=True))
    columns = [one.texts[path] for path in fields]
    times = [(sum(row in rows for row in zip(*columns, at.instants, strict=True)), at) for at in one.times]
    same, at = max(times, key=lambda it: (it[0], _likeness(it[1].path, time.path)), default=(0, None))
    if at is None or not same:
        return
    of_key = fields[len(wanted) - len(keys) :]
    found: dict[str, Any] = {"id": fields[0]} if id_ is not None else {}
    found |= {"key": of_key[0] if len(of_key) == 1 else of_key, "event_time": at.setting}
    yield same, events.topic, found


def _likeness(name: str, path: str) -> tuple[bool, bool, int]:
    return name == path, name.lower().endswith(path.rpartition(".")[2].lower()), -len(name)


def _position(one: TopicSample) -> dict[str, Any]:
    """The headers that name the original record."""
    headers = {name for record in one.records for name, _ in record.headers}
    for prefix in _POSITIONS:
        names = [f"{prefix}{part}" for part in ("topic", "partition", "offset")]
        if headers.issuperset(names):
            parts = ("topic", "partition", "offset")
            return {"position": {part: f"$header.{name}" for part, name in zip(parts, names, strict=True)}}
    return {}
