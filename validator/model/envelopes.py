"""Change envelopes: a record is a change of one row, with an operation and the row before or after it.

Sources: Debezium's "Data change events", Flink's formats `debezium-json`, `canal-json` and `maxwell-json`, Canal's
`CanalEntry.EventType`, Maxwell's "Data format", and `changelog-json` of Flink CDC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from validator.model.field_values import part_and_names

EnvelopeKind = Literal["canal", "changelog_json", "debezium", "debezium_with_schema", "maxwell"]
Operation = Literal["create", "read", "update", "delete"]
Path = tuple[str, ...]

ROW: Final = "row"
"""The first name of the path of a field in the row, as decoders have it."""
ENVELOPE: Final = "envelope"
"""The first name of the path of a field beside the row (`$envelope.FIELD`)."""
EVENTS: Final[tuple[Operation, ...]] = ("create", "read")
"""The changes of an input that are events, if the configuration does not say so."""
RETRACT: Final = "retract"
"""Flink's half of an update that names the row before it. The other half is an update."""
OTHER: Final = "other"
"""A change of a whole table, or a message: it names no row."""
MARK: Final = "mark"
"""The begin or the end of a copy of a table, which changes nothing."""


WITHDRAWING: Final = frozenset({"delete", RETRACT})
"""The operations that are about the row before them."""


class Image(NamedTuple):
    """A row in an envelope. ``field``: the name of its field. ``operations``: the texts of those that are about it."""

    field: str
    operations: tuple[str, ...]
    is_before: bool


@dataclass(frozen=True)
class Envelope:
    """The form of an envelope. ``around``: the path to it in a value. ``operation``: the name of its field with the
    operation. ``after``, ``before``: the names of its fields with the row; with ``is_listed`` these are lists of rows.
    ``meanings``: text of an operation -> an `Operation`, `RETRACT`, `OTHER` or `MARK`. ``old``: the name of its field
    with what changed of the row before an update, in lists as ``before``; None: ``before`` has the whole row."""

    kind: str
    operation: str
    after: str
    before: str
    meanings: Mapping[str, str]
    around: Path = ()
    is_listed: bool = False
    old: str | None = None

    @property
    def images(self) -> tuple[Image, Image]:
        """The row after a change, and the row before one."""
        rows = {text: meaning for text, meaning in self.meanings.items() if meaning not in (OTHER, MARK)}
        after = tuple(text for text, meaning in rows.items() if meaning not in WITHDRAWING)
        before = tuple(text for text in rows if text not in after)
        return Image(self.after, after, is_before=False), Image(self.before, before, is_before=True)

    @property
    def images_of_table(self) -> tuple[Image, Image]:
        """As `images`, where the row before a change is one of an update, too. Updates whose row before is not a whole
        are in neither."""
        after, before = self.images
        updates = tuple(text for text, meaning in self.meanings.items() if self.names_row_before(meaning))
        if self.old is not None:
            return after._replace(operations=tuple(it for it in after.operations if it not in updates)), before
        return after, before._replace(operations=(*before.operations, *updates))

    def image_of(self, meaning: str) -> str:
        """Return the name of the field with the row that an operation is about."""
        return self.before if meaning in WITHDRAWING else self.after

    def names_row_before(self, meaning: str) -> bool:
        """Return whether a change also has the row before it: an update, unless that row has a record of its own."""
        return meaning == "update" and (self.before != self.after or self.old is not None)

    def in_value(self, place: Path, image: str) -> Path:
        """Return the path in a value of a place that `placed` returned; other parts of the record stay as they are."""
        if place[:1] == (ROW,):
            return (*self.around, image, *place[1:])
        return (*self.around, *place[1:]) if place[:1] == (ENVELOPE,) else place


def placed(path: str, *, is_change: bool) -> tuple[str, Path]:
    """Return the part of a record in which a path begins, empty for the value, and the names after it. In a change,
    paths into the value begin with `ROW` or `ENVELOPE`."""
    part, names = part_and_names(path)
    if not is_change or part not in ("", "$envelope"):
        return part, names
    return "", (ENVELOPE if part else ROW, *names)


def _meanings(**texts: str) -> dict[str, str]:
    """Meaning -> its texts, separated by blanks, as text -> meaning."""
    return {text: meaning for meaning, of_one in texts.items() for text in of_one.split()}


_DEBEZIUM: Final = _meanings(create="c", read="r", update="u", delete="d", other="t m")
_CHANGELOG: Final = _meanings(create="+I", update="+U", delete="-D", retract="-U")
_CANAL: Final = _meanings(
    create="INSERT",
    update="UPDATE",
    delete="DELETE",
    other="CREATE ALTER ERASE QUERY TRUNCATE RENAME CINDEX DINDEX GTID XACOMMIT XAROLLBACK MHEARTBEAT",
)
_MAXWELL: Final = _meanings(
    create="insert",
    read="bootstrap-insert",
    update="update",
    delete="delete",
    mark="bootstrap-start bootstrap-complete",
    other="table-create table-alter table-drop database-create database-alter database-drop",
)

ENVELOPES: Final[Mapping[str, Envelope]] = MappingProxyType(
    {
        one.kind: one
        for one in (
            Envelope("canal", "type", "data", "data", _CANAL, is_listed=True, old="old"),
            Envelope("changelog_json", "op", "data", "data", _CHANGELOG),
            Envelope("debezium", "op", "after", "before", _DEBEZIUM),
            Envelope("debezium_with_schema", "op", "after", "before", _DEBEZIUM, ("payload",)),
            Envelope("maxwell", "type", "data", "data", _MAXWELL, old="old"),
        )
    }
)
"""Name of an envelope -> its form."""
