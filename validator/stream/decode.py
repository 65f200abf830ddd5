"""Decoders for the records of each source, for Spark's Python workers. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from validator.codecs import times
from validator.codecs.batches import EventBatches, ResultBatches
from validator.codecs.one_record import Keyless, KeyRule, RecordDecoder
from validator.codecs.plain_events import PlainEvents
from validator.codecs.plain_fields import Readers, form_of
from validator.config.model import Input, Late, Limits, Output
from validator.model.conditions import Condition
from validator.model.envelopes import ENVELOPES, EVENTS, EnvelopeKind, Path, placed
from validator.model.id_spaces import IdSpace
from validator.model.schemas import NO_SCHEMAS, Schemas
from validator.oracles.seam import Oracle
from validator.settings.fields import FieldPath
from validator.settings.time_patterns import TimePattern
from validator.settings.topics import TableTopic

_DEFAULT: Final = Limits()


@dataclass(frozen=True)
class Reader:
    """The decoder of the records of one source, and the oracle that assigns them to cells.

    ``slack_us``: `max_disorder` plus `allowed_lateness`, in microseconds; 0 for results. ``of_rows``: the records are
    rows of a table. ``replaces_rows``: a record replaces the row of its record key.
    """

    batches: EventBatches | ResultBatches
    oracle: Oracle
    slack_us: int
    of_rows: bool = False
    replaces_rows: bool = False

    @property
    def decoder(self) -> RecordDecoder:
        """The decoder of a single record."""
        return self.batches.decoder


def event_reader(
    topic: Input | Late | TableTopic,
    oracle: Oracle,
    slack_us: int,
    id_type: str,
    space: IdSpace | None = None,
    *,
    limits: Limits = _DEFAULT,
    missing_key: str = "undecodable",
    schemas: Schemas = NO_SCHEMAS,
) -> Reader:
    """A reader of input events, late or rejected records. An event has one id and its own event time.

    ``id_type``: ``auto``, ``integer`` or ``string``. ``space``: the id space of these events, if each input has one.
    ``missing_key``: what an absent or null key means. ``schemas``: those of the registry that are known.
    """
    decoder = RecordDecoder(
        topic,
        id_type,
        limits=limits,
        rounding=oracle.rounding,
        condition=_condition(topic, oracle),
        missing_key=missing_key,
        schemas=schemas,
        values=oracle.stated,
        key_rule=_key_rule(topic, oracle),
        own_end=_own_end(topic, oracle),
        splits_rows=isinstance(topic, Input) and oracle.reads.explodes,
    )
    readers = Readers(decoder.reader, decoder.key_reader)
    plain = plain_events_of(topic, oracle, id_type, space, limits, missing_key, readers)
    words = oracle.words_of(topic)
    is_plain = plain.can_decode and not decoder.has_items
    batches = EventBatches(decoder, plain if is_plain else None, space, words)
    of_rows = isinstance(topic, TableTopic)
    return Reader(batches, oracle, slack_us, of_rows=of_rows, replaces_rows=decoder.replaces_rows)


def result_reader(
    topic: Output,
    oracle: Oracle,
    id_type: str,
    spaces: Mapping[str, IdSpace] = {},
    *,
    limits: Limits = _DEFAULT,
    missing_key: str = "undecodable",
    schemas: Schemas = NO_SCHEMAS,
) -> Reader:
    """A reader of results. Each result names its cell and the ids that it used, or with evidence ``id`` its one id.

    ``spaces``: input topic -> its id space, if each input whose events results name has one. Each list of ids, or the
    one id, then belongs to one input.
    ``schemas``: as in `event_reader`.
    """
    decoder = RecordDecoder(
        topic,
        id_type,
        oracle.result_span_us,
        limits,
        condition=None if topic.where is None else topic.where.condition("ignored"),
        missing_key=missing_key,
        schemas=schemas,
        values=oracle.stated,
        id_fields=oracle.reads.id_fields,
    )
    of_lists = [spaces[path.input] for path in topic.fields.ids or () if path.input is not None]
    if topic.fields.id is not None:
        of_lists = list(spaces.values())
    return Reader(ResultBatches(decoder, of_lists), oracle, 0)


def plain_events_of(
    topic: Input | Late | TableTopic,
    oracle: Oracle,
    id_type: str,
    space: IdSpace | None,
    limits: Limits = _DEFAULT,
    missing_key: str = "undecodable",
    readers: Readers | None = None,
) -> PlainEvents:
    """The rules by which Arrow decodes the events of a topic."""
    fields = topic.fields
    at, own_end, condition = fields.event_time, _own_end(topic, oracle), _condition(topic, oracle)
    unit = at.unit
    kind: EnvelopeKind | None = getattr(topic, "envelope", None)
    envelope = None if kind is None else ENVELOPES[kind]

    operations = getattr(topic, "operations", None) or EVENTS

    def place(path: str) -> Path:
        part, names = placed(path, is_change=envelope is not None)
        return (part, *names) if part else names

    return PlainEvents(
        id=tuple(place(path.path) for path in fields.id or ()),
        key=tuple(place(path.path) for path in fields.key),
        event_time=place(fields.event_time.path),
        factor=None if unit is None else times.MICROSECONDS.get(unit, 1),
        divisor=1_000 if unit == "ns" else 1,
        rounding=oracle.rounding,
        key_bytes=limits.key_bytes,
        id_bytes=limits.id_bytes,
        value_bytes=limits.value_bytes,
        id_type=id_type,
        space=space,
        condition=condition,
        where=tuple(place(one.path) for one in (condition.comparisons if condition else ())),
        missing_key=missing_key,
        pattern=_pattern(at),
        readers=readers,
        addends=tuple(place(path) for path in oracle.stated.paths),
        present=oracle.stated.present,
        hashed=oracle.stated.hashed,
        digests=oracle.stated.digests,
        repeated=oracle.stated.repeated,
        envelope=envelope,
        operations=tuple(text for text, it in envelope.meanings.items() if it in operations) if envelope else (),
        is_table=bool(getattr(topic, "table", None)) and envelope is not None,
        own_end=None if own_end is None else (place(own_end.path), form_of(_pattern(own_end) or own_end.unit)),
    )


def _key_rule(topic: Input | Late | TableTopic, oracle: Oracle) -> KeyRule | None:
    """How the oracle computes keys, if it does. A set-aside event whose key is null may be one that owes nothing."""
    if not oracle.computes_key:
        return None
    keyless: Keyless = "undecodable" if not oracle.may_skip else "skipped" if isinstance(topic, Input) else "owed"
    return KeyRule(oracle, oracle.reads.key_fields, keyless)


def _pattern(at: FieldPath) -> TimePattern | None:
    return None if at.pattern is None else TimePattern(at.pattern, at.time_zone or "UTC")


def _own_end(topic: Input | Late | TableTopic, oracle: Oracle) -> FieldPath | None:
    """The own end of input events. Late and rejected records have none: they may lack its field."""
    return oracle.own_end if isinstance(topic, Input) else None


def _condition(topic: Input | Late | TableTopic, oracle: Oracle) -> Condition | None:
    """The oracle's condition for input events. Late and rejected records have none: they may lack its field."""
    return oracle.condition if isinstance(topic, Input) else None
