"""Reads ranges of Kafka offsets in Spark's Python workers, as Arrow batches.

librdkafka fetches and decompresses the records and omits those of aborted transactions. A worker keeps its consumer and
its connections between tasks. A range is read completely or not at all: the task fails if records of it have expired,
or if the brokers do not answer. Size limits are applied here, before any value, key or header is decoded.

Spark's own Kafka source only plans the batches: docs/decisions/0004-workers-read-kafka.md.
"""

from __future__ import annotations

import gc
import json
import math
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from validator.codecs.batches import columns_of
from validator.codecs.one_record import TOO_LARGE, RecordDecoder
from validator.codecs.plain_events import RECORD_SCHEMA
from validator.codecs.times import FARTHEST_US
from validator.model.kafka_refusals import ClientMessages
from validator.stream.in_child import in_child

_MESSAGES_AT_ONCE: Final = 1_000
"""Messages requested per call: few enough to stay in the processor's cache while they are copied."""
_BYTES_AT_ONCE: Final = 8 * 2**20
"""Approximate bytes of messages requested per call. It limits the number of large messages."""
_RECORDS_MAX: Final = 16_384
_HELD_BYTES_MAX: Final = 32 * 2**20
"""An Arrow batch ends once it has `_RECORDS_MAX` records or this many bytes of values."""
_POLL_SECONDS: Final = 0.1
_STATISTICS_MS: Final = 5_000
"""Interval of librdkafka's statistics, in milliseconds."""
_SILENCE_SECONDS: Final = 30.0
"""A range that does not advance for this long fails. The sidecar then restarts from the committed frontiers."""
_CHILD_SECONDS: Final = 60
"""Time for a child process to decompress and decode its one record, in addition to the allowed silence."""
_QUEUED_KBYTES: Final = 16 * 1024
"""KiB of decompressed records that librdkafka prefetches. It does not know where a range ends."""
_LOW_MEMORY_KBYTES: Final = 1024
_LOW_MEMORY_FETCH_BYTES: Final = 64 * 1024
_FARTHEST_MS: Final = FARTHEST_US // 1000 + 1
_TOPIC_RECREATED: Final = (
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 - its public name
    KafkaError.OFFSET_OUT_OF_RANGE,
)
_UNKNOWN: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
)

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary()), ("size", pa.int32())]))
_TYPES: Final = {
    **{f.name: f.type for f in RECORD_SCHEMA},
    "key": pa.binary(),
    "key_size": pa.int32(),
    "headers": _HEADERS,
}


_Item = TypeVar("_Item")
Offsets = npt.NDArray[np.int64]
Read = tuple[Sequence[Message], Offsets]
"""Messages of one partition and their offsets."""


class ReadFailed(Exception):
    """A range could not be read. The message is a sentence without its full stop."""


class _NotThere(ReadFailed):
    """The records have expired, or the brokers do not know their topic or partition."""


class Range(NamedTuple):
    """Offsets of one partition; ``end`` is exclusive. ``source``: index of the topic in the batch's sources."""

    source: int
    topic: str
    partition: int
    start: int
    end: int


@dataclass
class ConsumerMessages(ClientMessages):
    """The messages of one consumer. ``fetched``: (topic, partition) -> the offset that is fetched next. It rises also
    while librdkafka omits records of aborted transactions and returns no message."""

    fetched: dict[tuple[str, int], int] = field(default_factory=dict)

    def statistics(self, text: str) -> None:
        """``stats_cb`` of librdkafka."""
        for topic, found in json.loads(text)["topics"].items():
            for number, partition in found["partitions"].items():
                self.fetched[topic, int(number)] = partition["next_offset"]

    def options(self) -> dict[str, object]:
        """As of `ClientMessages`."""
        return {**super().options(), "statistics.interval.ms": _STATISTICS_MS, "stats_cb": self.statistics}


@dataclass(frozen=True)
class Reading:
    """How ranges are read.

    ``options``: librdkafka's, for connection, authentication and the isolation level. ``may_miss``: topics whose absent
    records are not an error. ``low_memory``: memory is short, so little is fetched at once. ``isolated``: a range of
    one record is read in a child process, since a record that is fetched beyond the range may not fit into memory.
    ``memory_bytes``: limit of a worker's heap; None: unlimited. ``silence_seconds``: a range that does not advance for
    this long fails.
    """

    options: Mapping[str, Any]
    may_miss: frozenset[str] = frozenset()
    low_memory: bool = False
    isolated: bool = False
    memory_bytes: int | None = None
    silence_seconds: float = _SILENCE_SECONDS

    def with_low_memory(self, *, isolated: bool = False) -> Reading:
        """A copy that fetches little at once, and with ``isolated`` reads single records in a child process."""
        return replace(self, low_memory=True, isolated=isolated)

    def records(self, wanted: Range, decoder: RecordDecoder) -> Iterator[pa.RecordBatch]:
        """The visible records of a range, in offset order, as batches with the columns of `columns_of`.

        Raises as `messages` does.
        """
        return self._read(wanted, self._records(wanted, decoder))

    def _records(self, wanted: Range, decoder: RecordDecoder) -> Iterator[pa.RecordBatch]:
        columns = Columns(wanted.partition, decoder)
        most = _HELD_BYTES_MAX // (8 if self.low_memory else 1)
        for messages, offsets in self.messages(wanted):
            columns.add(messages, offsets)
            if columns.held_records >= _RECORDS_MAX or columns.held_bytes >= most:
                yield columns.batch()
        if columns.held_records:
            yield columns.batch()

    def each(
        self, taken: Callable[[Message], _Item], ranges: Iterable[Range], *, isolated: bool = False
    ) -> Iterator[_Item]:
        """``taken`` applied to each visible message of ``ranges``. Raises as `messages` does."""
        if isolated and not self.isolated:
            return replace(self, isolated=True).each(taken, ranges)
        return (item for one in ranges for item in self._read(one, map(taken, self._each_message(one))))

    def _each_message(self, wanted: Range) -> Iterator[Message]:
        return (message for messages, _ in self.messages(wanted) for message in messages)

    def _read(self, wanted: Range, items: Iterator[_Item]) -> Iterator[_Item]:
        """The ``items`` of a range, read in this process, or in a child process with its own consumer.

        A child reads an isolated record: once the record is taken, librdkafka fetches the records that follow, and
        aborts its process if they do not fit into memory.
        """
        if self.memory_bytes is not None:
            # The limit is set before Arrow's first allocation: without a limit its allocator reserves 1 GiB.
            _bound(self.memory_bytes)
        if not self._is_alone(wanted):
            return items
        _close_consumers()
        return iter(in_child(lambda: list(items), math.ceil(self.silence_seconds) + _CHILD_SECONDS))

    def _is_alone(self, wanted: Range) -> bool:
        return self.isolated and wanted.end - wanted.start == 1

    def messages(self, wanted: Range) -> Iterator[Read]:
        """The visible messages of a range in offset order, in chunks.

        Raises `ReadFailed`, and `MemoryError` if librdkafka could not decompress a record.
        """
        try:
            # Reading creates no reference cycles, and the garbage collector would take a third of the reading time.
            with _consumer(self._client_options(alone=self._is_alone(wanted))) as (consumer, client_messages):
                with _no_collector():
                    yield from _until_end(
                        consumer, client_messages, wanted, self.silence_seconds, low_memory=self.low_memory
                    )
                consumer.unassign()
        except _NotThere as error:
            if wanted.topic not in self.may_miss:
                raise ReadFailed(*error.args) from None

    def _client_options(self, *, alone: bool) -> dict[str, Any]:
        """The consumer's options. ``alone``: fetch one isolated record, without the batches that follow its own."""
        queued = _LOW_MEMORY_KBYTES if self.low_memory else _QUEUED_KBYTES
        ours: dict[str, Any] = {
            # librdkafka requires a group id. Nothing is committed, and no group is joined.
            "group.id": "streamproof",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 5,
            "fetch.queue.backoff.ms": 1,
            "fetch.error.backoff.ms": 50,
            # The topic existed when the batch was planned.
            "topic.metadata.propagation.max.ms": 3_000,
            "queued.min.messages": 10_000_000,
            "queued.max.messages.kbytes": queued,
            # A record batch may be as large as the broker allows, whatever fetch size is requested.
            "receive.message.max.bytes": 2**31 - 1,
        }
        if self.low_memory:
            # A broker returns at least one record batch, whatever fetch size is requested.
            ours["fetch.message.max.bytes"] = 1 if alone else _LOW_MEMORY_FETCH_BYTES
        if alone:
            # The next record may be the one that does not fit: librdkafka fetches it late, after this one is taken.
            ours |= {"queued.min.messages": 1, "fetch.queue.backoff.ms": 1_000}
        return {**self.options, **ours}


def _until_end(
    consumer: Consumer, client_messages: ConsumerMessages, wanted: Range, silence_seconds: float, *, low_memory: bool
) -> Iterator[Read]:
    """The messages of a range, up to its end. Raises as `_after` does."""
    client_messages.texts.clear()
    client_messages.fetched.clear()
    consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.start)])
    count = 1 if low_memory else _MESSAGES_AT_ONCE
    reached = fetched = wanted.start
    moved = time.monotonic()
    while reached < wanted.end:
        # consume() waits for this many messages, or for `_POLL_SECONDS`.
        messages: list[Message] = consumer.consume(min(count, wanted.end - reached), _POLL_SECONDS)
        errors: list[Message] = []
        if any(map(Message.error, messages)):
            errors = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
        before = reached
        if messages:
            offsets = _checked(messages, wanted, reached)
            reached = int(offsets[-1]) + 1
            if reached > wanted.end:
                count = int(np.searchsorted(offsets, wanted.end))
                messages, offsets = messages[:count], offsets[:count]
            if reached >= wanted.end:
                # Fetching stops before these are processed: records after the range may not fit into memory.
                consumer.unassign()
        if messages:
            # A sample of sizes suffices: librdkafka's queue is limited in bytes as well.
            size = max(map(len, messages[:: max(1, len(messages) // 8)]))
            count = max(1, min(_MESSAGES_AT_ONCE, _BYTES_AT_ONCE // max(1, size)))
            yield messages, offsets
        # Errors are handled after the records that preceded them.
        for error in errors:
            reached = max(reached, _after(error, wanted, reached))
        fetched_before, fetched = fetched, max(fetched, client_messages.fetched.get(wanted[1:3], 0))
        if reached > before or fetched > fetched_before:
            moved = time.monotonic()
        # librdkafka returns no message for a topic that does not exist.
        elif any("Unknown topic or partition" in text and wanted.topic in text for text in client_messages.texts):
            raise _unknown(wanted)
        elif time.monotonic() - moved > silence_seconds:
            raise ReadFailed(_silence(wanted, reached, client_messages, silence_seconds))


def _checked(messages: Sequence[Message], wanted: Range, reached: int) -> Offsets:
    """The offsets of ``messages``. Raises `ReadFailed` if they do not continue the range.

    Messages that librdkafka still holds from an earlier assignment must not be counted.
    """
    offsets = np.fromiter(map(Message.offset, messages), np.int64, len(messages))
    if (
        offsets[0] < reached
        or (np.diff(offsets) <= 0).any()
        or any(
            message.topic() != wanted.topic or message.partition() != wanted.partition
            for message in (messages[0], messages[-1])
        )
    ):
        first = messages[0]
        raise ReadFailed(
            f"the client delivered {first.topic()}-{first.partition()} from offset {first.offset()} instead of "
            f"{wanted.topic}-{wanted.partition} from offset {reached}"
        )
    return offsets


def _after(message: Message, wanted: Range, reached: int) -> int:
    """The next offset to read after an error event of librdkafka.

    Raises `MemoryError` if a record could not be decompressed, and `ReadFailed` for any other error of the partition:
    librdkafka itself would continue after a record that it cannot read.
    """
    error = message.error()
    assert error is not None
    if message.topic() != wanted.topic or message.partition() != wanted.partition:
        # An error of the group (its permissions are not needed), of a connection, or of an earlier assignment.
        return reached
    code = error.code()
    if code == KafkaError._PARTITION_EOF:  # noqa: SLF001
        # This offset may precede the planned end: a newly elected leader does not know the high watermark yet.
        return int(message.offset() or 0)
    partition = f"{wanted.topic}-{wanted.partition}"
    if code in _TOPIC_RECREATED:
        raise _NotThere(f"records expired before they could be read: {partition} has no record at offset {reached} now")
    if code in _UNKNOWN:
        raise _unknown(wanted)
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise ReadFailed(f"Not authorized to access topics: [{wanted.topic}]")
    if code == KafkaError._BAD_COMPRESSION:  # noqa: SLF001
        raise MemoryError(f"a record of {partition} could not be decompressed")
    if code == KafkaError._BAD_MSG:  # noqa: SLF001
        raise ReadFailed(f"a record of {partition} is damaged on the broker: {error.str()}")
    raise ReadFailed(f"{partition} cannot be read from offset {reached} on: {error.str()}")


class Columns:
    """Collects messages of one partition into an Arrow batch."""

    def __init__(self, partition: int, decoder: RecordDecoder) -> None:
        self._partition = partition
        self._most_of_value = decoder.most.value_bytes
        self._most_of_key = decoder.most_of_key
        self._most_of_header = decoder.most_of_header
        self._names = columns_of(decoder)
        self._chunks: list[list[pa.Array]] = []
        self.held_records = self.held_bytes = 0

    def add(self, messages: Sequence[Message], offsets: Offsets) -> None:
        """Copy the fields of ``messages`` that the decoder reads."""
        values = _within(pa.array(map(Message.value, messages), pa.binary()), self._most_of_value)
        found: dict[str, pa.Array] = {
            "value": values,
            "partition": pa.array(np.full(len(messages), self._partition, dtype=np.int32)),
            "offset": pa.array(offsets),
            "time_us": _times(messages),
        }
        if self._most_of_key is not None:
            keys = pa.array(map(Message.key, messages), pa.binary())
            sizes = pc.binary_length(keys)
            found |= {"key": pc.if_else(pc.less_equal(sizes, self._most_of_key), keys, None), "key_size": sizes}
        if self._most_of_header:
            found["headers"] = _headers(messages, self._most_of_header)
        self._chunks.append([found[name] for name in self._names])
        self.held_records += len(messages)
        self.held_bytes += values.nbytes

    def batch(self) -> pa.RecordBatch:
        """All messages taken since the previous batch. At least one is required."""
        columns = [pa.concat_arrays(list(chunks)) for chunks in zip(*self._chunks, strict=True)]
        self._chunks = []
        self.held_records = self.held_bytes = 0
        schema = pa.schema([(name, _TYPES[name]) for name in self._names])
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _within(values: pa.Array, most: int) -> pa.Array:
    """The values; a marker replaces each one that is longer than ``most`` bytes.

    A value that itself looks like a marker becomes empty.
    """
    largest = pc.max(pc.binary_length(values)).as_py() or 0
    if largest <= most and not pc.any(pc.starts_with(values, TOO_LARGE)).as_py():
        return values

    def cut(value: bytes | None) -> bytes | None:
        if value is None:
            return None
        if len(value) > most:
            return TOO_LARGE + str(len(value)).encode()
        return b"" if value.startswith(TOO_LARGE) else value

    return pa.array([cut(value.as_py()) for value in values], pa.binary())


def _times(messages: Sequence[Message]) -> pa.Array:
    """The records' timestamps in microseconds. As in the Java client, a record without a timestamp has -1 ms.

    A producer may write any number. Numbers that are not valid times are clamped to just outside the valid range.
    """
    stamps = np.fromiter(map(itemgetter(1), map(Message.timestamp, messages)), dtype=np.int64, count=len(messages))
    return pa.array(np.clip(stamps, -_FARTHEST_MS, _FARTHEST_MS) * 1000)


def _headers(messages: Sequence[Message], most_of: Mapping[str, int]) -> pa.Array:
    """The last header of each name in ``most_of`` (name -> most bytes). A longer value is null; ``size``: its bytes."""
    names: list[str] = []
    values: list[bytes | None] = []
    sizes: list[int | None] = []
    ends = [0]
    for message in messages:
        found = _named_headers(message)
        for name, most in most_of.items():
            if name in found:
                value = found[name]
                names.append(name)
                values.append(value if value is not None and len(value) <= most else None)
                sizes.append(None if value is None else len(value))
        ends.append(len(names))
    items = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(values, pa.binary()), pa.array(sizes, pa.int32())],
        fields=list(_HEADERS.value_type),
    )
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, _HEADERS)


def _named_headers(message: Message) -> Mapping[str, bytes | None]:
    try:
        return dict(message.headers() or ())  # type: ignore[arg-type] # the values are bytes
    except UnicodeDecodeError:
        # A header name is not UTF-8, which the protocol does not allow. The client then returns none of the headers.
        return {}


_consumers: Final[dict[str, tuple[Consumer, ConsumerMessages]]] = {}
"""This worker's consumer, at most one, by its options."""


def _close_consumers() -> None:
    for consumer, _ in _consumers.values():
        consumer.close()
    _consumers.clear()


@contextmanager
def _consumer(options: dict[str, Any]) -> Iterator[tuple[Consumer, ConsumerMessages]]:
    """This worker's consumer. A consumer that met an error, or was left within a range, is not reused."""
    name = repr(sorted(options.items()))
    found = _consumers.pop(name, None)
    _close_consumers()
    if found is None:
        client_messages = ConsumerMessages()
        found = Consumer({**options, **client_messages.options()}), client_messages
    try:
        yield found
    except BaseException:
        found[0].close()
        raise
    _consumers[name] = found


@contextmanager
def _no_collector() -> Iterator[None]:
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _unknown(wanted: Range) -> _NotThere:
    partition = f"{wanted.topic}-{wanted.partition}"
    return _NotThere(f"the brokers did not know {partition} for a moment (UnknownTopicOrPartition)")


def _silence(wanted: Range, reached: int, client_messages: ClientMessages, seconds: float) -> str:
    reason = f" ({client_messages.texts[-1]})" if client_messages.texts else ""
    return (
        f"the brokers did not answer in time: no record of {wanted.topic}-{wanted.partition} from offset {reached} on "
        f"arrived within {seconds:g} s{reason}"
    )


def _bound(memory_bytes: int) -> None:
    """Limit this process's heap, in bytes: nothing else limits the decompressed size of a record.

    If the host runs out of memory, the kernel ends a worker before other processes.
    """
    for limit, wanted in ((resource.RLIMIT_DATA, memory_bytes), (resource.RLIMIT_CORE, 0)):
        soft, hard = resource.getrlimit(limit)
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft != most:
            resource.setrlimit(limit, (most, hard))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
