"""What the sidecar would make of the newest records of every topic: how many decode, and one as it understands it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaException

from validator.cli.diagnosis import Finding, note, ok, problem
from validator.codecs.one_record import Event, Record, RecordDecoder, Result, Undecodable
from validator.config.model import Config
from validator.model.wording import plural
from validator.publish.times import rfc3339
from validator.stream import sampling
from validator.stream.sources import id_type_of, oracle_of, sources_of

RECORDS_MOST: Final = 100
SECONDS_MAX: Final = 5.0
_IDS_SHOWN: Final = 3
_TEXT_SHOWN: Final = 60
_FAR_US: Final = 10 * 365 * 24 * 3_600_000_000
"""A time further from now than this has the wrong unit, or is history."""


def check(config: Config, partitions: Mapping[str, Sequence[int]]) -> Iterator[Finding]:
    """A finding for each topic of the pipeline that exists. ``partitions``: topic -> those that it has."""
    for source in sources_of(config):
        if source.topic not in partitions:
            continue
        place = next(place for place, topic in config.topics_by_place() if topic == source.topic)
        subject = f"records of {source.topic}"
        try:
            records = sampling.newest(config, source.topic, partitions[source.topic], RECORDS_MOST, SECONDS_MAX)
        except KafkaException as error:
            yield problem(subject, f"they cannot be read ({error.args[0].str()})", "check kafka.options")
            continue
        if not records:
            seen = "committed " if config.kafka.isolation_level == "read_committed" else ""
            yield note(subject, f"no {seen}record is visible, so it is not known whether {place} fits its records")
            continue
        rounding = oracle_of(config).rounding
        decoder = RecordDecoder(source.configured, id_type_of(config), config.oracle.size, config.limits, rounding)
        yield from _topic(config, subject, place.removesuffix(".topic"), source.topic, decoder, records)


def _topic(
    config: Config, subject: str, place: str, topic: str, decoder: RecordDecoder, records: Sequence[Record]
) -> Iterator[Finding]:
    said = [(record, decoder.decode(record)) for record in records]
    good = [(record, one) for record, one in said if isinstance(one, (Event, Result))]
    bad = [(record, one) for record, one in said if isinstance(one, Undecodable)]
    if bad:
        record, why = bad[-1]
        what = "its value" if why.field is None else f"field {why.field} (path {why.path})"
        of_them = f"of the newest {len(said)}"
        share = f"{len(bad)} {of_them} do not decode" if good else f"none {of_them} decodes"
        told = f"{share}: at {topic}-{record.partition} offset {record.offset} {what} {why.reason}"
        check_what = f"{place}.fields.{why.field}" if why.field is not None else place
        yield note(subject, told) if good else problem(subject, told, f"check {check_what}")
    if not good:
        return
    record, one = good[-1]
    at = f"{topic}-{record.partition} offset {record.offset}"
    yield ok(subject, f"{len(good)} of the newest {len(said)} decode; {at} is {_understood(config, one)}")
    now_us = time.time_ns() // 1000
    instant = one.event_time_us if isinstance(one, Event) else one.window_start_us
    if abs(instant - now_us) > _FAR_US:
        name = "event_time" if isinstance(one, Event) else "window_start"
        yield note(
            subject,
            f"{_time(instant)} is more than 10 years from now: unless it is history, the unit of "
            f"{place}.fields.{name} is wrong",
        )


def _understood(config: Config, one: Event | Result) -> str:
    """A record in words."""
    if isinstance(one, Event):
        start = oracle_of(config).window_start_at(one.event_time_us)
        return (
            f"event {_shown(one.id)} of key {_shown(one.key)} at {_time(one.event_time_us)}, "
            f"in the window from {_time(start)}"
        )
    ids = [item for found in one.ids for item in found]
    some = ", ".join(_shown(item) for item in ids[:_IDS_SHOWN]) + (", ..." if len(ids) > _IDS_SHOWN else "")
    count = plural(len(ids), "id")
    told = f"a result for the window from {_time(one.window_start_us)} and key {_shown(one.key)} with {count}"
    return f"{told} ({some})" if ids else told


def _shown(value: int | str) -> str:
    text = str(value)
    return text if len(text) <= _TEXT_SHOWN else f"{text[:_TEXT_SHOWN]}... ({len(text)} characters)"


def _time(instant_us: int) -> str:
    return rfc3339(instant_us) or f"{instant_us // 1_000_000} s after 1970, which no calendar has"
