"""How the records of each source are decoded, in Spark's Python workers. Nothing here reads or writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from validator.codecs import times
from validator.codecs.batches import EventBatches, ResultBatches
from validator.codecs.conditions import Condition
from validator.codecs.one_record import RecordDecoder
from validator.codecs.plain_events import PlainEvents
from validator.config.model import Input, Late, Limits, Output
from validator.model.id_spaces import IdSpace
from validator.oracles.seam import Oracle

_DEFAULT: Final = Limits()


@dataclass(frozen=True)
class Reader:
    """How the records of one source become decoded columns, and in which cells. ``slack_us``: disorder plus allowed
    lateness."""

    batches: EventBatches | ResultBatches
    oracle: Oracle
    slack_us: int

    @property
    def decoder(self) -> RecordDecoder:
        """The rule by which its records decode."""
        return self.batches.decoder


def event_reader(
    topic: Input | Late,
    oracle: Oracle,
    slack_us: int,
    id_type: str,
    space: IdSpace | None = None,
    *,
    limits: Limits = _DEFAULT,
) -> Reader:
    """Input events, late records and rejected records: each carries one id and its own event time.

    ``id_type`` is ``auto``, ``integer`` or ``string``. ``space``: the id space of these events, where inputs have their
    own.
    """
    decoder = RecordDecoder(
        topic, id_type, limits=limits, rounding=oracle.rounding, condition=_condition(topic, oracle)
    )
    plain = plain_events_of(topic, oracle, id_type, space, limits) if decoder.reads_json else None
    return Reader(EventBatches(decoder, plain, space), oracle, slack_us)


def result_reader(
    topic: Output,
    oracle: Oracle,
    id_type: str,
    spaces: Mapping[str, IdSpace] = {},
    *,
    limits: Limits = _DEFAULT,
) -> Reader:
    """Results: each names its cell and carries the list of ids (or, with evidence ``id``, the one id) that it used.

    ``spaces``: input topic -> its id space, where inputs have their own; the lists say whose they are.
    """
    decoder = RecordDecoder(topic, id_type, oracle.result_span_us, limits)
    of_lists = [spaces[path.input] for path in topic.fields.ids or () if path.input is not None]
    return Reader(ResultBatches(decoder, of_lists), oracle, 0)


def plain_events_of(
    topic: Input | Late, oracle: Oracle, id_type: str, space: IdSpace | None, limits: Limits = _DEFAULT
) -> PlainEvents:
    """How Arrow decodes the events of a topic."""
    fields = topic.fields
    unit, condition = fields.event_time.unit, _condition(topic, oracle)
    return PlainEvents(
        id=_place(fields.id.path),
        key=tuple(_place(path.path) for path in fields.key),
        event_time=_place(fields.event_time.path),
        factor=None if unit is None else times.MICROSECONDS.get(unit, 1),
        divisor=1_000 if unit == "ns" else 1,
        rounding=oracle.rounding,
        key_bytes=limits.key_bytes,
        id_bytes=limits.id_bytes,
        value_bytes=limits.value_bytes,
        id_type=id_type,
        space=space,
        condition=condition,
        where=() if condition is None else _place(condition.path),
    )


def _condition(topic: Input | Late, oracle: Oracle) -> Condition | None:
    """Of set-aside records nobody asks for it: they need not have the field."""
    return oracle.condition if isinstance(topic, Input) else None


def _place(path: str) -> tuple[str, ...]:
    return (path,) if path.startswith("$") else tuple(path.split("."))
