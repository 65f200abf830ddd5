"""The topics of a pipeline by their role, and the fields of their records: id, key, time and evidence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from validator.model.envelopes import ENVELOPES, EnvelopeKind, Operation, placed
from validator.model.field_values import part_and_names
from validator.settings.built import SHARED_CHANGES
from validator.settings.conditions import Where
from validator.settings.errors import broken_rule, broken_rule_at
from validator.settings.explode import Explode
from validator.settings.fields import FieldPath, Frozen, Id, Ids, IdsPath, Key, ValuePath, check_single
from validator.settings.formats.json_object import JsonObject
from validator.settings.formats.kinds import AnyFormat
from validator.settings.formats.text import Text

TOPIC_PATTERN: Final = r"^[A-Za-z0-9._-]{1,249}$"


def _topic(name: str) -> str:
    if not re.match(TOPIC_PATTERN, name) or name in {".", ".."}:
        raise broken_rule(f"{name!r} is not a topic name", "use up to 249 letters, digits, dots, _ and -")
    return name


Topic = Annotated[str, AfterValidator(_topic), WithJsonSchema({"type": "string", "pattern": TOPIC_PATTERN})]
Emission = Literal["final", "cumulative", "incremental"]
MissingKey = Literal["undecodable", "skip", "owed"]


JSON: Final = JsonObject()
TEXT: Final = Text()

Path = FieldPath | IdsPath | ValuePath
Fields = Mapping[str, Path | tuple[FieldPath | IdsPath, ...] | None]
"""The fields of a topic by their names."""


def _no_units(fields: Fields) -> None:
    for name, path in _paths(fields):
        if isinstance(path, FieldPath) and path.has_form:
            raise broken_rule_at(name, "it has a unit or a pattern and is not a time", "write its path alone")


def _paths(fields: Fields) -> list[tuple[str, Path]]:
    """Every path with the name of its field."""
    tuples = {name: field if isinstance(field, tuple) else (field,) for name, field in fields.items()}
    return [(name, path) for name, paths in tuples.items() for path in paths if path is not None]


def _can_decode(values: Fields, times: Fields, lists: Fields | None = None) -> None:
    """Refuse a combination of fields that no record can have."""
    for name, path in _paths(times):
        if path.path in ("$offset", "$partition"):
            raise broken_rule_at(name, f"{path.path} is not a time", "use $timestamp, or a field that holds a time")
    listed = _paths(lists or {})
    for name, path in listed:
        if path.path in ("$timestamp", "$offset", "$partition"):
            fix = "name an array in the value, or a $key or $header.NAME that holds a JSON array"
            raise broken_rule_at(name, f"{path.path} is one number, not a list of ids", fix)
    for name, path in listed:
        if [other.path for _, other in listed].count(path.path) > 1:
            raise broken_rule_at(name, f"{path.path} is named twice, so that each id counts twice", "name it once")
    scalars = [*_paths(values), *_paths(times)]
    single = [(name, path.path) for name, path in [*scalars, *listed]]
    check_single(single, single)
    for name, path in listed:
        for other_name, other in scalars:
            if path.path == other.path:
                problem = f"{path.path} cannot be both the list of ids and the {other_name}"
                raise broken_rule_at(name, problem, "name another path")


class _Entry(Frozen):
    """A topic and the format of its values."""

    topic: Topic
    """Name of the topic."""
    format: AnyFormat = Field(default=JSON, json_schema_extra={"default": JSON.kind})
    """How the value of a record is encoded: the name of a format, or a mapping of its `kind` and its parameters."""

    key_format: AnyFormat = Field(default=TEXT, json_schema_extra={"default": TEXT.kind})
    """How the key of a record is encoded, in the same form. It is read only if a field begins with `$key`."""

    @model_validator(mode="after")
    def _formats_have_the_fields(self) -> Self:
        self.check_paths(_paths_within(self, ""))
        return self

    def check_where(self, place: str, where: Where, owner: str = "") -> None:
        """Refuse a condition that no record of this topic can meet. ``place``: that of the condition. ``owner``: what
        to add to the names of the topic's fields."""
        paths = list(where.paths(place))
        self.check_paths((at, path) for at, path, _ in paths)
        scalars = [(place, path) for _, path, is_scalar in paths if is_scalar]
        at = self.fields  # type: ignore[attr-defined]  # every kind of topic has fields
        others = {"key": at.key, "id": at.id or (), "ids": getattr(at, "ids", None) or ()}
        times = {name: getattr(at, name, None) for name in ("event_time", "window_start", "window_end")}
        fields = [*others.items(), *((name, (path,)) for name, path in times.items() if path is not None)]
        single = [(f"the {name}{owner}", path.path) for name, paths_of in fields for path in paths_of]
        for at_path, path, _ in paths:
            check_single([(at_path, path)], [*single, *scalars])
        check_single(single, scalars, place)

    def check_paths(self, paths: Iterable[tuple[str, str]]) -> None:
        """Refuse a path that no record can have. ``paths``: pairs of the place in the configuration and the path."""
        kind: str | None = getattr(self, "envelope", None)
        form = None if kind is None else ENVELOPES[kind]
        parts = [(place, *placed(path, is_change=form is not None)) for place, path in paths]
        for place, part, _ in parts:
            if part == "$envelope":
                raise broken_rule_at(place, "the topic has no envelope", f"write envelope: {' or '.join(ENVELOPES)}")
        values = [(place, names) for place, part, names in parts if not part]
        if form is not None:
            values = [(place, form.in_value(names, form.after)) for place, names in values]
            values.append(("envelope", (*form.around, form.operation)))
        self.format.check(values)
        self.key_format.check((place, names) for place, part, names in parts if part == "$key")


def _paths_within(part: Frozen, place: str) -> Iterator[tuple[str, str]]:
    """Every path below ``part``, with its place."""
    for name, value in part:
        if isinstance(value, dict):
            yield from ((f"{place}{name}.{key}", one.path) for key, one in value.items() if isinstance(one, ValuePath))
            continue
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, FieldPath | IdsPath):
                yield place + name, one.path
            elif isinstance(one, Frozen):
                yield from _paths_within(one, f"{place}{name}.")


class EventFields(Frozen):
    """The fields that hold an event's id, key and time."""

    id: Id | None = None
    """The event's id: one path or a list of paths, together unique within the inputs. Required, unless results have
    evidence `values`."""
    key: Key
    """The key that the pipeline groups by: one path or a list of paths; `[]` if it does not."""
    event_time: FieldPath
    """The event's time: ISO 8601 text, or a number with a unit."""

    @model_validator(mode="after")
    def _units(self) -> EventFields:
        _no_units({"id": self.id, "key": self.key})
        _can_decode({"id": self.id, "key": self.key}, {"event_time": self.event_time})
        return self


class _Events(_Entry):
    """A topic whose records are events, or changes of rows."""

    envelope: EnvelopeKind | None = None
    """The records are [changes](formats.md#change-envelopes) of rows in this form."""
    operations: tuple[Operation, ...] | None = Field(default=None, min_length=1, examples=[["create", "update"]])
    """The changes that are events; others are ignored. None: `create` and `read` (of a snapshot)."""

    @model_validator(mode="after")
    def _operations_need_changes(self) -> Self:
        if self.operations is not None and self.envelope is None:
            fix = f"write envelope: {' or '.join(ENVELOPES)}, or leave it out"
            raise broken_rule_at("operations", "the records are not changes", fix)
        return self


class Input(_Events):
    """A topic that the pipeline reads."""

    fields: EventFields
    """Paths of an event's id, key and time."""
    duplicates: Literal["count", "collapse"] = "count"
    """`count`: an event that was sent twice is expected twice; `collapse`: the pipeline drops repeated ids."""
    id_type: Literal["auto", "integer", "string"] = "auto"
    """`auto`: number 1 and text "1" are the same id; `integer`: other ids are undecodable; `string`: all ids are
    text."""
    explode: Explode | None = None
    """The pipeline counts the words of a text, which is the key, and not the event itself."""
    table: bool | None = None
    """The topic has each [change](formats.md#change-envelopes) of a table once, from its first row on: it removes the
    row before it and adds the row after it."""
    missing_key: MissingKey = "undecodable"
    """An event of which a field of the key is absent or null is `undecodable`; it owes no result (`skip`); or null is a
    key like others, as in SQL (`owed`)."""
    tombstone: Literal["undecodable", "ignore", "delete"] | None = None
    """A null value is `undecodable`; it is not an event (`ignore`); or, in a `table`, it deletes the row of its record
    key, which other records replace (`delete`). None: `ignore` with an `envelope`, or if the id (or, without ids, the
    key or the time) is a field of the value; else `undecodable`."""

    @model_validator(mode="after")
    def _table_has_changes(self) -> Self:
        if self.tombstone == "delete" and not self.table:
            raise broken_rule_at("tombstone", "only rows of a table are deleted", "also write table: true")
        if not self.table or (self.replaces_rows and self.envelope is None):
            return self
        if self.replaces_rows:
            raise broken_rule_at("tombstone", "a change of the envelope has the row that it deletes", "leave it out")
        if self.envelope is None:
            fix = f"write envelope: {' or '.join(ENVELOPES)}, or tombstone: delete"
            raise broken_rule_at("table", "the records are not changes", fix)
        if ENVELOPES[self.envelope].old is not None and self.format.names_all_fields:
            problem = f"{self.format.kind} does not show which fields are absent from `old`, since they did not change"
            raise broken_rule_at("table", problem, "leave it out")
        if self.operations is not None:
            raise broken_rule_at("operations", "every change of a table counts", "leave it out")
        return self

    @model_validator(mode="after")
    def _several_are_a_text(self) -> Self:
        if self.fields.id is not None and len(self.fields.id) > 1 and self.id_type == "integer":
            raise broken_rule_at("id_type", "an id of several fields is a text", "leave it out, or name one field")
        return self

    @property
    def replaces_rows(self) -> bool:
        """Whether a record replaces the row of its record key, and a null value deletes it."""
        return bool(self.table) and self.tombstone == "delete"

    @property
    def ignores_tombstones(self) -> bool:
        """Whether a null value is not an event."""
        if self.envelope is not None or self.replaces_rows:
            return self.tombstone != "undecodable"
        at = self.fields
        needed = (*at.key, at.event_time) if at.id is None else at.id
        # SEMANTICS 2.24: without a value the record has no id that a result could carry.
        is_in_value = any(not part_and_names(path.path)[0] for path in needed)
        return self.tombstone == "ignore" or (self.tombstone is None and is_in_value)


class ResultFields(Frozen):
    """The fields that hold a result's key, its window or event time, and its evidence."""

    key: Key
    """The result's key, with its fields in the same order as in the keys of the inputs."""
    window_start: FieldPath | None = None
    """Start of the result's window."""
    window_end: FieldPath | None = None
    """End of the result's window: checked against the start, or in its place for windows of one size."""
    event_time: FieldPath | None = None
    """Time of the event that the result carries, if the oracle has no windows."""
    ids: Ids | None = None
    """The lists of ids of the events that the result used (evidence `ids`); one path or a list."""
    id: Id | None = None
    """The id of the one event that the result carries (evidence `id`), with its fields in the order of the inputs."""
    values: dict[str, ValuePath] = Field(default_factory=dict, examples=[{"clicks": "count"}])
    """Paths of the values that the result states (evidence `values`, or beside ids), by the names of
    `oracle.values`."""

    @model_validator(mode="after")
    def _units(self) -> ResultFields:
        named = {f"values.{name}": path for name, path in self.values.items()}
        values: Fields = {"id": self.id, "key": self.key, **named}
        _no_units(values)
        times: Fields = {
            "window_start": self.window_start,
            "window_end": self.window_end,
            "event_time": self.event_time,
        }
        _can_decode(values, times, {"ids": self.ids})
        if self.window_start and self.window_end and self.window_start.path == self.window_end.path:
            problem = f"{self.window_end.path} is already the path of window_start"
            raise broken_rule_at("window_end", problem, "name another path, or leave it out")
        return self


class Output(_Entry):
    """A topic that the pipeline writes results to. Several topics are shards of one output."""

    emission: Emission = "final"
    """The meaning of repeated results of a cell: every one counts (`final`), the newest replaces the others
    (`cumulative`), or they add up (`incremental`)."""
    evidence: str = "ids"
    """How a result shows the events that it used."""
    fields: ResultFields
    """Paths of a result's key, window and evidence."""
    where: Where | None = None
    """Which records are results, if other services write the topic, too."""
    envelope: EnvelopeKind | None = None
    """The records are [changes](formats.md#change-envelopes) of rows in this form."""

    @model_validator(mode="after")
    def _others_are_recognised(self) -> Self:
        if self.where is None:
            return self
        if self.emission == "cumulative":
            # A null value does not show which service withdraws its result.
            raise broken_rule_at("where", SHARED_CHANGES.problem, "leave it out, or write final")
        self.check_where("where", self.where)
        return self

    @model_validator(mode="after")
    def _changes_replace(self) -> Self:
        # SEMANTICS 2.16: with another emission no result is ever withdrawn, and an update would count twice.
        if self.envelope is not None and self.emission != "cumulative":
            raise broken_rule_at("emission", "a change replaces the row before it", "write cumulative")
        return self


class PositionFields(Frozen):
    """The fields of a rejected record that name its input record."""

    topic: FieldPath
    """The input topic."""
    partition: FieldPath
    """The partition: a number, or four or eight bytes of a header, big-endian."""
    offset: FieldPath
    """The offset, in the same form as the partition."""

    @model_validator(mode="after")
    def _units(self) -> PositionFields:
        _no_units({"topic": self.topic, "partition": self.partition, "offset": self.offset})
        return self


class SetAsideFields(EventFields):
    """The fields that hold a set-aside event's id, key and time."""

    position: PositionFields | None = None
    """Fields of a rejected record that name its input record; refused in `late`. They are used if the rejected record
    does not decode, and settle an undecodable input record."""


class Late(_Events):
    """A topic of events that the pipeline set aside, as too late or as rejected (a dead-letter topic)."""

    fields: SetAsideFields
    """Paths of the set-aside event's id, key and time."""
    input: str | None = None
    """The input topic of these events, if each input has its own id space."""

    @property
    def ignores_tombstones(self) -> bool:
        """Whether a null value is not an event."""
        return self.envelope is not None


class TableTopic(_Entry):
    """A topic whose records are rows of a table: a record replaces the row of its key, and a null value removes it."""

    fields: EventFields
    """Paths of a row's key and of the time from which it holds."""
    deletes_rows: ClassVar[bool] = True
    """A null value is a row without fields."""

    @model_validator(mode="after")
    def _rows_have_no_id(self) -> Self:
        if self.fields.id is not None:
            raise broken_rule_at("fields.id", "a row is found by its key", "leave it out")
        return self


def missing_key_of(entry: Input | Output | Late | TableTopic, inputs: Iterable[Input]) -> MissingKey:
    """What an absent or null key means on a topic. On topics of answers it is a key if it is not undecodable on every
    input: a result, late or rejected record may then name such an event."""
    if isinstance(entry, Input):
        return entry.missing_key
    return "owed" if any(one.missing_key != "undecodable" for one in inputs) else "undecodable"


class FaultsTopic(Frozen):
    """The topic on which a fault runner or chaos tool reports its faults."""

    topic: Topic
    """Name of the topic; [its records](CONTRACT.md#faults-topic)."""
