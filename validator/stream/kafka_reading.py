"""Reads ranges of Kafka's offsets in Spark's Python workers, as batches of Arrow.

librdkafka fetches and decompresses the records and leaves out those of aborted transactions. A worker keeps its
consumer, and with it its connections, from task to task. A range is read whole or not at all: the task fails where
records of it are gone, or where the brokers do not answer. Records are cut to the limits here, before anything looks at
what they hold.

Spark's own Kafka source plans the batches and does not read them: docs/decisions/0114-workers-read-kafka.md.
"""

from __future__ import annotations

import gc
import math
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
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
from validator.codecs.plain_events import TAKEN
from validator.codecs.times import FARTHEST_US
from validator.model.kafka_refusals import Heard
from validator.stream.in_child import in_child

_MESSAGES_AT_ONCE: Final = 1_000
"""Messages that are asked for at once: few enough that they stay in the processor's cache while they are copied."""
_BYTES_AT_ONCE: Final = 8 * 2**20
"""About as many bytes of messages are asked for at once where messages are large."""
_RECORDS_AT_MOST: Final = 16_384
_HELD_BYTES_MOST: Final = 32 * 2**20
"""A batch of Arrow has no more records, and no more bytes of them than this and those of one call."""
_POLL_SECONDS: Final = 0.1
_SILENCE_SECONDS: Final = 30.0
"""The sidecar then begins again at the committed frontiers."""
_CHILD_SECONDS: Final = 60
"""A child that reads one record has as long, beside its silence, for decompressing and decoding it."""
_QUEUED_KBYTES: Final = 16 * 1024
"""What librdkafka fetches ahead, decompressed. It does not know where a range ends."""
_SPARING_KBYTES: Final = 1024
_SPARING_FETCH_BYTES: Final = 64 * 1024
_FARTHEST_MS: Final = FARTHEST_US // 1000 + 1
_STARTED_ANEW: Final = (
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 - its public name
    KafkaError.OFFSET_OUT_OF_RANGE,
)
_UNKNOWN: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
)

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary()), ("size", pa.int32())]))
_TYPES: Final = {**{f.name: f.type for f in TAKEN}, "key": pa.binary(), "key_size": pa.int32(), "headers": _HEADERS}


_Item = TypeVar("_Item")
Offsets = npt.NDArray[np.int64]
Read = tuple[Sequence[Message], Offsets]
"""Messages of one partition and their offsets."""


class ReadFailed(Exception):
    """A range could not be read; the text is a sentence without its full stop."""


class _NotThere(ReadFailed):
    """The records, or their topic, are not there."""


class Range(NamedTuple):
    """Offsets of one partition, the ``end`` excluded. ``source``: index of the topic in the batch's sources."""

    source: int
    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class Reading:
    """How ranges are read.

    ``options``: of librdkafka, with how to reach and to be let into the cluster, and the isolation level.
    ``may_miss``: topics of which records may be gone. ``sparing``: memory was short, so that little is fetched at once.
    ``isolated``: a range of one record is read in a child process: what did not fit may be its neighbour.
    ``memory_bytes``: the most that a worker's heap may have; None leaves it unbounded. ``silence_seconds``: a range
    that does not move on for so long fails.
    """

    options: Mapping[str, Any]
    may_miss: frozenset[str] = frozenset()
    sparing: bool = False
    isolated: bool = False
    memory_bytes: int | None = None
    silence_seconds: float = _SILENCE_SECONDS

    def spared(self, *, isolated: bool = False) -> Reading:
        """The same, with little fetched at once, and on request with records that are alone isolated."""
        return replace(self, sparing=True, isolated=isolated)

    def records(self, wanted: Range, decoder: RecordDecoder) -> Iterator[pa.RecordBatch]:
        """The visible records of a range, in order: batches with the columns that `columns_of` names.

        Raises as `messages` does.
        """
        return self._read(wanted, self._records(wanted, decoder))

    def _records(self, wanted: Range, decoder: RecordDecoder) -> Iterator[pa.RecordBatch]:
        columns = _Columns(wanted.partition, decoder)
        most = _HELD_BYTES_MOST // (8 if self.sparing else 1)
        for messages, offsets in self.messages(wanted):
            columns.take(messages, offsets)
            if columns.held_records >= _RECORDS_AT_MOST or columns.held_bytes >= most:
                yield columns.batch()
        if columns.held_records:
            yield columns.batch()

    def each(
        self, taken: Callable[[Message], _Item], ranges: Iterable[Range], *, isolated: bool = False
    ) -> Iterator[_Item]:
        """What ``taken`` makes of each visible message of ``ranges``. Raises as `messages` does."""
        if isolated and not self.isolated:
            return replace(self, isolated=True).each(taken, ranges)
        return (item for one in ranges for item in self._read(one, map(taken, self._each_message(one))))

    def _each_message(self, wanted: Range) -> Iterator[Message]:
        return (message for messages, _ in self.messages(wanted) for message in messages)

    def _read(self, wanted: Range, items: Iterator[_Item]) -> Iterator[_Item]:
        """The ``items`` of a range, which are read here, or in a child process with a consumer of its own.

        A child reads an isolated record: as soon as it is taken, librdkafka fetches what follows, and aborts its
        process where that does not fit into the memory.
        """
        if self.memory_bytes is not None:
            # Before Arrow allocates anything: its allocator reserves 1 GiB where no limit hinders it.
            _bound(self.memory_bytes)
        if not self._is_alone(wanted):
            return items
        _close_consumers()
        return iter(in_child(lambda: list(items), math.ceil(self.silence_seconds) + _CHILD_SECONDS))

    def _is_alone(self, wanted: Range) -> bool:
        return self.isolated and wanted.end - wanted.start == 1

    def messages(self, wanted: Range) -> Iterator[Read]:
        """The visible messages of a range in order, some at a time.

        Raises `ReadFailed`, and `MemoryError` where librdkafka could not decompress a record.
        """
        try:
            # Nothing here makes cycles, and looking for them would cost a third of the reading.
            with _consumer(self._client_options(alone=self._is_alone(wanted))) as (consumer, heard):
                with _no_collector():
                    yield from _until_end(consumer, heard, wanted, self.silence_seconds, sparing=self.sparing)
                consumer.unassign()
        except _NotThere as error:
            if wanted.topic not in self.may_miss:
                raise ReadFailed(*error.args) from None

    def _client_options(self, *, alone: bool) -> dict[str, Any]:
        """``alone``: for one isolated record, without those that follow its batch."""
        queued = _SPARING_KBYTES if self.sparing else _QUEUED_KBYTES
        ours: dict[str, Any] = {
            # A name that librdkafka wants; nothing is committed, and no group is joined.
            "group.id": "streamproof",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 5,
            "fetch.queue.backoff.ms": 1,
            "fetch.error.backoff.ms": 50,
            # The topic was there a moment ago.
            "topic.metadata.propagation.max.ms": 3_000,
            "queued.min.messages": 10_000_000,
            "queued.max.messages.kbytes": queued,
            # One batch of records may be as large as a broker allows, whatever is asked for.
            "receive.message.max.bytes": 2**31 - 1,
        }
        if self.sparing:
            # Of what is asked for, at least one batch of records comes.
            ours["fetch.message.max.bytes"] = 1 if alone else _SPARING_FETCH_BYTES
        if alone:
            # What comes next may be what does not fit: it is not fetched before this record is taken, nor at once then.
            ours |= {"queued.min.messages": 1, "fetch.queue.backoff.ms": 1_000}
        return {**self.options, **ours}


def _until_end(
    consumer: Consumer, heard: Heard, wanted: Range, silence_seconds: float, *, sparing: bool
) -> Iterator[Read]:
    """The messages of a range, up to its end. Raises `ReadFailed`."""
    heard.texts.clear()
    consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.start)])
    asked = 1 if sparing else _MESSAGES_AT_ONCE
    reached = wanted.start
    moved = time.monotonic()
    while reached < wanted.end:
        # It waits until it has as many.
        messages: list[Message] = consumer.consume(min(asked, wanted.end - reached), _POLL_SECONDS)
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
                # Before these are looked at: what follows the range may not fit into the memory.
                consumer.unassign()
        if messages:
            # Some of them tell the size of all; what librdkafka holds is bounded by bytes as well.
            size = max(map(len, messages[:: max(1, len(messages) // 8)]))
            asked = max(1, min(_MESSAGES_AT_ONCE, _BYTES_AT_ONCE // max(1, size)))
            yield messages, offsets
        # After the records that came before them.
        for error in errors:
            reached = max(reached, _after(error, wanted, reached))
        if reached > before:
            moved = time.monotonic()
        # Of a topic that does not exist librdkafka delivers no message.
        elif any("Unknown topic or partition" in text and wanted.topic in text for text in heard.texts):
            raise _unknown(wanted)
        elif time.monotonic() - moved > silence_seconds:
            raise ReadFailed(_silence(wanted, reached, heard, silence_seconds))


def _checked(messages: Sequence[Message], wanted: Range, reached: int) -> Offsets:
    """The offsets of ``messages``. Raises `ReadFailed` where they do not continue the range: whatever librdkafka still
    held of another assignment must not be counted."""
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
            f"the client delivered {first.topic()}-{first.partition()} from offset {first.offset()} where "
            f"{wanted.topic}-{wanted.partition} is read from offset {reached}"
        )
    return offsets


def _after(message: Message, wanted: Range, reached: int) -> int:
    """The offset that is reached after an event of librdkafka.

    Raises `ReadFailed` for each error of the partition: librdkafka goes on behind what it cannot read.
    """
    error = message.error()
    assert error is not None
    if message.topic() != wanted.topic or message.partition() != wanted.partition:
        # Of the group, whose rights are not needed, of the connections, or of what was assigned before.
        return reached
    code = error.code()
    if code == KafkaError._PARTITION_EOF:  # noqa: SLF001
        # Not the end that was planned where a broker that leads anew does not know yet how far all replicas are.
        return int(message.offset() or 0)
    place = f"{wanted.topic}-{wanted.partition}"
    if code in _STARTED_ANEW:
        raise _NotThere(f"records expired before they could be read: {place} has none at offset {reached} any more")
    if code in _UNKNOWN:
        raise _unknown(wanted)
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise ReadFailed(f"Not authorized to access topics: [{wanted.topic}]")
    if code == KafkaError._BAD_COMPRESSION:  # noqa: SLF001
        raise MemoryError(f"a record of {place} was not decompressed")
    if code == KafkaError._BAD_MSG:  # noqa: SLF001
        raise ReadFailed(f"a record of {place} is damaged on the broker: {error.str()}")
    raise ReadFailed(f"{place} cannot be read from offset {reached} on: {error.str()}")


class _Columns:
    """Messages of one partition on their way to a batch of Arrow."""

    def __init__(self, partition: int, decoder: RecordDecoder) -> None:
        self._partition = partition
        self._most_of_value = decoder.most.value_bytes
        self._most_of_key = decoder.most_of_key
        self._most_of_header = decoder.most_of_header
        self._names = columns_of(decoder)
        self._chunks: list[list[pa.Array]] = []
        self.held_records = self.held_bytes = 0

    def take(self, messages: Sequence[Message], offsets: Offsets) -> None:
        """Copy what is looked at of ``messages``."""
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
        """All that was taken since the last one."""
        columns = [pa.concat_arrays(list(chunks)) for chunks in zip(*self._chunks, strict=True)]
        self._chunks = []
        self.held_records = self.held_bytes = 0
        schema = pa.schema([(name, _TYPES[name]) for name in self._names])
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _within(values: pa.Array, most: int) -> pa.Array:
    """The values, or what stands for those of more than ``most`` bytes; a value that looks so is none."""
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
    """The records' timestamps in microseconds; as in the Java client, one that has none has -1 ms. A producer may have
    written any number: what is no time stays beyond all times."""
    stamps = np.fromiter(map(itemgetter(1), map(Message.timestamp, messages)), dtype=np.int64, count=len(messages))
    return pa.array(np.clip(stamps, -_FARTHEST_MS, _FARTHEST_MS) * 1000)


def _headers(messages: Sequence[Message], most_of: Mapping[str, int]) -> pa.Array:
    """The last header of each name that is read; the value is null where it is too long, ``size`` says so."""
    names: list[str] = []
    values: list[bytes | None] = []
    sizes: list[int | None] = []
    ends = [0]
    for message in messages:
        # Of equal names the last one stays.
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
        return dict(message.headers() or ())  # type: ignore[arg-type] # they come as bytes
    except UnicodeDecodeError:
        # A name that is no text: the protocol has none. What else the record has cannot be told from it.
        return {}


_consumers: Final[dict[str, tuple[Consumer, Heard]]] = {}
"""The one that this worker has, by its options."""


def _close_consumers() -> None:
    for consumer, _ in _consumers.values():
        consumer.close()
    _consumers.clear()


@contextmanager
def _consumer(options: dict[str, Any]) -> Iterator[tuple[Consumer, Heard]]:
    """This worker's consumer; one that met an error, or was left in the middle of a range, is not used again."""
    name = repr(sorted(options.items()))
    found = _consumers.pop(name, None)
    _close_consumers()
    if found is None:
        heard = Heard()
        found = Consumer({**options, **heard.options()}), heard
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
    place = f"{wanted.topic}-{wanted.partition}"
    return _NotThere(f"the brokers did not know {place} for a moment (UnknownTopicOrPartition)")


def _silence(wanted: Range, reached: int, heard: Heard, seconds: float) -> str:
    said = f" ({heard.texts[-1]})" if heard.texts else ""
    return (
        f"the brokers did not answer in time: nothing of {wanted.topic}-{wanted.partition} from offset {reached} on "
        f"came within {seconds:g} s{said}"
    )


def _bound(memory_bytes: int) -> None:
    """Bound this process's heap: what a record decompresses to has no other limit. Where the host has no memory left,
    a worker is the process to end."""
    for limit, wanted in ((resource.RLIMIT_DATA, memory_bytes), (resource.RLIMIT_CORE, 0)):
        soft, hard = resource.getrlimit(limit)
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft != most:
            resource.setrlimit(limit, (most, hard))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
