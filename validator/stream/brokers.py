"""Lookups at the brokers: existing topics, starts and ends of their logs, committed offsets, topic settings.

The driver makes all its requests to Kafka here, except those that read or write records and those of Spark's source.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Final, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

from validator.config.model import Config
from validator.model.frontier import UNREADABLE_POLICY, Lookup, PartitionId
from validator.model.kafka_refusals import TRANSIENT, ClientMessages, Refusal, missing_right
from validator.stream.clients import for_librdkafka, made, why_refused
from validator.stream.topic_settings import TopicSettings

_Answer = TypeVar("_Answer")
_TIMEOUT_SECONDS: Final = 20.0
_NOT_THERE: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_EXCEPTION,  # no topic can have such a name
)
_NO_RIGHT: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)
_POLL_SECONDS: Final = 0.05
_REFUSED_SECONDS: Final = 1.5
"""If all connections are refused for this long, a request fails before its timeout: no broker is going to answer."""
_UNREADABLE: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, *_NO_RIGHT)
"""Error codes of a broker that does not show the settings of a topic."""
_COORDINATOR_MOVES: Final = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
"""Transient error codes: first request for any group, restart of a broker, or another broker taking over the group."""
_LEADER_MOVES: Final = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
)
"""Transient error codes: a topic that was just created, or an election."""
_MOVE_SECONDS: Final = 5.0
"""How long an election may take. A partition without a leader for longer is an outage, which must be noted."""
_RETRY_SECONDS: Final = 0.1
_EARLIEST: Final[OffsetSpec] = OffsetSpec.earliest()
_LATEST: Final[OffsetSpec] = OffsetSpec.latest()


class BrokersUnreachable(Exception):
    """The brokers did not answer within the timeout."""


class BrokersRefuse(BrokersUnreachable):
    """The brokers refuse the sidecar's credentials, certificate or protocol, or the sidecar lacks a permission."""


@dataclass(frozen=True)
class Topic:
    """An existing topic: its name, id and partitions. A recreated topic has another id."""

    name: str
    id: str
    partitions: tuple[int, ...]


class Brokers:
    """The cluster of one configuration. Every method may raise `BrokersUnreachable`.

    ``servers``: the bootstrap addresses. ``answered_at``: instant of the last answer (at first, of the construction) on
    the monotonic clock, in seconds.
    """

    def __init__(self, config: Config, timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
        self._timeout_seconds = timeout_seconds
        self.servers = config.kafka.bootstrap_servers
        self.answered_at = time.monotonic()
        self._group = config.engine.consumer_group
        self._config = config
        self._heard = ClientMessages()
        options = for_librdkafka(config, {"socket.timeout.ms": 10_000})
        self._admin = made(AdminClient, options | self._heard.options())
        self._groups: dict[str, Consumer] = {}

    def topics(self, names: Iterable[str], optional: Collection[str] = ()) -> dict[str, Topic]:
        """The existing topics among ``names``. Only these are requested: a cluster can have thousands of topics.

        Raises `BrokersRefuse` if the sidecar lacks the permission to see one; one in ``optional`` is left out instead.
        """
        found = {}
        for name, seen in self.seen(names).items():
            if isinstance(seen, BrokersRefuse):
                if name not in optional:
                    raise seen
            elif seen is not None:
                found[name] = seen
        return found

    def seen(self, names: Iterable[str]) -> dict[str, Topic | BrokersRefuse | None]:
        """Name -> the topic, the missing permission to see it, or None if it does not exist."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        try:
            described = self._admin.describe_topics(TopicCollection(wanted), request_timeout=self._timeout_seconds)
        except KafkaException as error:
            raise self._unreachable(error) from error
        found: dict[str, Topic | BrokersRefuse | None] = {}
        for name, future in described.items():
            try:
                answer = self._answer(future)
            except KafkaException as error:
                code = error.args[0].code()
                why = None if code in _NOT_THERE else self._unreachable(error, f"topic {name}")
                if why is not None and code != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise why from error
                assert why is None or isinstance(why, BrokersRefuse)
                found[name] = why
                continue
            partitions = tuple(sorted(partition.id for partition in answer.partitions))
            found[name] = Topic(name, str(answer.topic_id), partitions) if partitions else None
        return found

    def lookup(self, topics: Mapping[str, Topic]) -> dict[PartitionId, Lookup]:
        """Log start, high watermark, last stable offset and (with a group) committed offset of every partition.

        `topics` must be called before: it refreshes the client's metadata. Without that, the client keeps asking the
        leader that it knows, and fails permanently once another one is elected.
        """
        partitions = [TopicPartition(t.name, p) for t in topics.values() for p in t.partitions]
        if not partitions:
            return {}
        # A committed offset is looked up first. Therefore it is not past the high watermark. Only an offset that
        # was committed on an earlier topic of the same name can be past it.
        committed = self.committed(partitions) if self._group is not None else {}
        starts = self._offsets(partitions, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)
        # The high watermark is looked up before the last stable offset: in the other order, records appended in
        # between would look like an open transaction.
        high = self._offsets(partitions, _LATEST, IsolationLevel.READ_UNCOMMITTED)
        stable = self._offsets(partitions, _LATEST, IsolationLevel.READ_COMMITTED)
        return {
            partition: Lookup(
                topic_id=topics[partition.topic].id,
                log_start_offset=starts[partition],
                high_watermark=high[partition],
                last_stable_offset=min(stable[partition], high[partition]),
                committed_offset=committed.get(partition),
            )
            for partition in high
        }

    def settings(self, topics: Iterable[str]) -> dict[str, TopicSettings]:
        """Topic -> its settings, for existing topics whose settings the sidecar may read."""
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in sorted(set(topics))]
        if not resources:
            return {}
        found = {}
        try:
            answers = self._admin.describe_configs(resources, request_timeout=self._timeout_seconds)
            for resource, future in answers.items():
                try:
                    found[resource.name] = TopicSettings.of(self._answer(future))
                except KafkaException as error:
                    if error.args[0].code() not in _UNREADABLE:
                        raise
        except KafkaException as error:
            raise self._unreachable(error) from error
        return found

    def policies(self, topics: Iterable[str]) -> dict[str, str]:
        """Topic -> its `cleanup.policy`; `UNREADABLE_POLICY` if the sidecar may not read it."""
        names = set(topics)
        found = self.settings(names)
        return {name: found[name].cleanup_policy if name in found else UNREADABLE_POLICY for name in names}

    def at_time(self, topics: Mapping[str, Topic], instant_us: int) -> dict[PartitionId, int]:
        """Partition -> first offset with a record timestamp at or after the instant; the end if there is none."""
        partitions = [TopicPartition(t.name, p) for t in topics.values() for p in t.partitions]
        found = self._offsets(partitions, OffsetSpec.for_timestamp(instant_us // 1000), IsolationLevel.READ_UNCOMMITTED)
        ends = self._offsets(partitions, _LATEST, IsolationLevel.READ_COMMITTED)
        return {partition: offset if offset >= 0 else ends[partition] for partition, offset in found.items()}

    def committed(self, partitions: list[TopicPartition], group: str | None = None) -> dict[PartitionId, int]:
        """Committed offsets of the engine's group, or of ``group``. Partitions without one are left out."""
        name = group or self._group
        assert name is not None
        # A consumer that never joins the group. librdkafka 2.16 ends the process (SIGSEGV) if the coordinator moves
        # while an AdminClient, which has no group, asks for its offsets.
        if name not in self._groups:
            ours = {"socket.timeout.ms": 10_000, "group.id": name, "isolation.level": "read_uncommitted"}
            self._groups[name] = made(Consumer, for_librdkafka(self._config, ours) | self._heard.options())
        client, deadline = self._groups[name], time.monotonic() + self._timeout_seconds
        while True:
            try:
                answer = client.committed(partitions, timeout=min(_REFUSED_SECONDS, self._timeout_seconds))
                _refusal_in(client)  # of earlier requests
                self.answered_at = time.monotonic()
                return {PartitionId(p.topic, p.partition): p.offset for p in answer if p.offset >= 0}
            except KafkaException as error:
                # The request waits for a coordinator, and the refusal to name one comes once, as a message.
                said = _refusal_in(client) or error.args[0]
                code = said.code()
                if code > KafkaError.NO_ERROR:
                    self.answered_at = time.monotonic()
                # The client's own errors, which have negative codes, say that it waits for an answer.
                waits = code <= KafkaError.NO_ERROR or code in _COORDINATOR_MOVES
                if not waits:
                    self._groups.pop(name).close()
                if not waits or time.monotonic() >= deadline:
                    raise self._unreachable(KafkaException(said), f"group {name}") from error
            self._check_refused()
            time.sleep(_RETRY_SECONDS)

    def _offsets(
        self, partitions: list[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[PartitionId, int]:
        """The offsets that ``spec`` asks for. While a leader moves, they are asked for again."""
        deadline = time.monotonic() + min(_MOVE_SECONDS, self._timeout_seconds)
        while True:
            try:
                futures = self._admin.list_offsets(
                    dict.fromkeys(partitions, spec),
                    isolation_level=isolation,
                    request_timeout=self._timeout_seconds,
                )
            except KafkaException as error:
                raise self._unreachable(error) from error
            found = {}
            for partition, future in futures.items():
                try:
                    found[PartitionId(partition.topic, partition.partition)] = self._answer(future).offset
                except KafkaException as error:
                    if error.args[0].code() not in _LEADER_MOVES or time.monotonic() >= deadline:
                        raise self._unreachable(error, f"topic {partition.topic}") from error
            if len(found) == len(futures):
                return found
            time.sleep(_RETRY_SECONDS)
            self.seen(partition.topic for partition in partitions)  # refreshes the client's metadata

    def _answer(self, future: Future[_Answer]) -> _Answer:
        """The answer to a request. Raises KafkaException, or `BrokersRefuse` before the request's timeout."""
        self._admin.poll(0)
        give_up = time.monotonic() + _REFUSED_SECONDS
        while True:
            try:
                answer = future.result(_POLL_SECONDS)
            except FutureTimeoutError:
                self._admin.poll(0)
            except KafkaException as error:
                if error.args[0].code() > KafkaError.NO_ERROR:
                    # A broker sent this error. The client's own errors have negative codes.
                    self.answered_at = time.monotonic()
                raise
            else:
                self.answered_at = time.monotonic()
                self._heard.texts.clear()
                return answer
            if time.monotonic() > give_up:
                self._check_refused()
                give_up = time.monotonic() + _REFUSED_SECONDS

    def _check_refused(self) -> Refusal | None:
        """Why connections failed since the last answer or check. Raises `BrokersRefuse` if the brokers refused them."""
        found = why_refused(self._config, self._heard)
        self._heard.texts.clear()
        if found is not None and found.kind not in TRANSIENT:
            raise BrokersRefuse(f"the Kafka brokers at {self.servers} cannot be used: {found}")
        return found

    def _unreachable(self, error: KafkaException, resource: str = "the cluster") -> BrokersUnreachable:
        code = error.args[0].code() if error.args else None
        if code in _NO_RIGHT:
            # The permission to read a topic includes the permission to describe it.
            right = "READ" if resource.startswith("topic") else "DESCRIBE"
            problem, fix = missing_right(right, resource, self._config.kafka.options)
            return BrokersRefuse(f"{problem}: {fix}")
        self._admin.poll(0)
        try:
            found = self._check_refused()
        except BrokersRefuse as refused:
            return refused
        if code is not None and code > KafkaError.NO_ERROR:
            return BrokersUnreachable(
                f"the Kafka brokers at {self.servers} answered for {resource} with an error: {error.args[0].str()}"
            )
        reason = found.problem if found is not None else error.args[0].str() if error.args else str(error)
        fix = found.fix if found is not None else "check kafka.bootstrap_servers"
        return BrokersUnreachable(f"no answer from the Kafka brokers at {self.servers} ({reason}): {fix}")


def _refusal_in(client: Consumer) -> KafkaError | None:
    """The missing right that a message of a consumer names."""
    errors = [message.error() for message in iter(lambda: client.poll(0), None)]
    return next((error for error in errors if error is not None and error.code() in _NO_RIGHT), None)
