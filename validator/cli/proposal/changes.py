"""Changes of rows in sampled values: the envelope that they have, and their rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, get_args

from validator.model.envelopes import (
    ENVELOPES,
    EVENTS,
    MARK,
    OTHER,
    WITHDRAWING,
    Envelope,
    EnvelopeKind,
    Operation,
)
from validator.settings.formats.guesses import ENOUGH

FURTHER: Final[tuple[Operation, ...]] = ("update", "delete")
"""The operations that may be events beside `EVENTS`."""
_KINDS: Final[tuple[EnvelopeKind, ...]] = get_args(EnvelopeKind)
RESULTS: Final = frozenset({*EVENTS, "update"})
"""The operations whose row is a result."""


class Change(NamedTuple):
    """A change of one row. ``operation``: its meaning. ``around``: the fields beside the row."""

    operation: str
    row: Mapping[str, object]
    around: Mapping[str, object]


@dataclass(frozen=True)
class Changes:
    """The changes of a topic. ``operations``: those that its values have or, of a reading, that count."""

    kind: EnvelopeKind
    operations: frozenset[str]

    def of(self, value: object) -> Change | None:
        """The change of a row that a value is."""
        found = _change(value, ENVELOPES[self.kind])
        return found if found is not None and found.operation in self.operations else None

    @property
    def events(self) -> tuple[Operation, ...]:
        """The operations of an input that are events, in a usual order."""
        return (*EVENTS, *(one for one in FURTHER if one in self.operations))


def changes_in(values: Sequence[object]) -> Changes | None:
    """The changes that nearly all of the values are; None if they are none."""
    given = [value for value in values if value is not None]
    for kind in _KINDS:
        found = [change for value in given if (change := _change(value, ENVELOPES[kind])) is not None]
        if found and len(found) >= ENOUGH * len(given):
            return Changes(kind, frozenset(one.operation for one in found))
    return None


def events_of(all_changes: Sequence[Changes]) -> Iterator[frozenset[str]]:
    """Yield the operations that may be events, the fewest first."""
    seen = {operation for one in all_changes for operation in one.operations}
    further = [one for one in FURTHER if one in seen]
    ways: list[Collection[str]] = [(), *([one] for one in further), *([further] if len(further) > 1 else [])]
    yield from (frozenset((*EVENTS, *way)) for way in ways)


def _change(value: object, envelope: Envelope) -> Change | None:
    for name in envelope.around:
        value = value.get(name) if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or (envelope.after not in value and envelope.before not in value):
        return None
    operation = envelope.meanings.get(str(value.get(envelope.operation)))
    if operation in (None, OTHER, MARK):
        return None
    row = value.get(envelope.before if operation in WITHDRAWING else envelope.after)
    if envelope.is_listed:
        row = row[0] if isinstance(row, list) and len(row) == 1 else None
    if not isinstance(row, Mapping):
        return None
    of_rows = (envelope.after, envelope.before, envelope.old)
    around = {name: one for name, one in value.items() if name not in of_rows}
    return Change(operation, row, around)
