"""Checks of a pipeline: what the sidecar requires to verify it (brokers, topics, a state folder, a free port)."""

from __future__ import annotations

import fcntl
import os
import socket
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, ResourceType

from validator.cli import clients, samples
from validator.cli.check_result import CheckResult, note, ok, problem
from validator.cli.machine import disk
from validator.config.model import Config
from validator.model.classes import Guarantee
from validator.model.kafka_options import OptionsRefused
from validator.model.kafka_refusals import missing_right
from validator.publish.access import Access, AccessError
from validator.state import folder as state_folder
from validator.state import identity
from validator.state.lock import NETWORK_TYPES, mount_of
from validator.state.tables import StateTables
from validator.stream import rereading
from validator.stream.brokers import Brokers, BrokersRefuse, BrokersUnreachable, Topic
from validator.stream.clients import for_librdkafka, made
from validator.stream.topic_settings import ids_that_repeat, warnings

TIMEOUT_SECONDS: Final = 8.0


def check(config: Config) -> Iterator[CheckResult]:
    """The findings of all checks of the pipeline. If the brokers do not answer, checks that need them are left out."""
    yield ok("configuration", f"pipeline {config.pipeline}, {config.guarantee.value}")
    yield _isolation(config)
    yield from _state(config.state.path)
    yield from _identity(config)
    yield _port(config)
    try:
        brokers = Brokers(config, TIMEOUT_SECONDS)
        seen = brokers.seen(topic for _, topic in config.topics_by_place())
    except (OptionsRefused, BrokersUnreachable) as error:
        # The error's sentence already says how to fix it.
        yield CheckResult("problem", "brokers", f"{str(error).rstrip('.')}.")
        return
    yield ok("brokers", f"{config.kafka.bootstrap_servers} answer")
    yield from _topics(config, seen)
    topics = {name: topic.partitions for name, topic in seen.items() if isinstance(topic, Topic)}
    read: Collection[str] = ()
    for finding in samples.check(config, topics):
        if (finding.subject, finding.status) == ("python client", "ok"):
            read = topics
        yield finding
    yield clients.check(config, topics, read)
    admin = made(AdminClient, for_librdkafka(config, {"log_level": 0}))
    yield from _canary(config, admin, topics)
    yield from _timestamps(config, admin, topics)
    yield from _kept(config, brokers, {name: topic for name, topic in seen.items() if isinstance(topic, Topic)})
    yield from _group(config, brokers, admin)


def _isolation(config: Config) -> CheckResult:
    isolation = config.kafka.isolation_level
    if isolation == "read_uncommitted" and config.guarantee is Guarantee.EXACTLY_ONCE:
        text = (
            "read_uncommitted also counts records of aborted transactions: a correct engine then seems to write "
            "duplicates"
        )
        return note("isolation", text)
    return ok("isolation", isolation)


def _topics(config: Config, seen: Mapping[str, Topic | BrokersRefuse | None]) -> Iterator[CheckResult]:
    for place, topic in config.topics_by_place():
        found = seen[topic]
        if isinstance(found, Topic):
            count = len(found.partitions)
            yield ok(f"topic {topic}", f"{count} partitions" if count != 1 else "1 partition")
        elif found is not None:
            yield CheckResult("problem", f"topic {topic}", f"{found}.")
        elif place.startswith("faults"):
            yield note(f"topic {topic}", "it does not exist yet; the sidecar reports faults when the topic exists")
        else:
            yield problem(f"topic {topic}", "it does not exist", f"create it or fix {place}")


def _canary(config: Config, admin: AdminClient, topics: Collection[str]) -> Iterator[CheckResult]:
    """A problem for each canary topic to which the sidecar may not write, according to the brokers."""
    if config.canary is None:
        return
    wanted = [name for name in (config.canary.input, config.canary.output) if name in topics]
    collection = TopicCollection(wanted)
    if not wanted:
        return
    described = admin.describe_topics(collection, include_authorized_operations=True, request_timeout=TIMEOUT_SECONDS)
    for name, future in described.items():
        try:
            rights = future.result().authorized_operations
        except KafkaException:
            # The topic existed just before. `validate` reports the problem.
            continue
        if rights is not None and AclOperation.WRITE not in rights:
            text, fix = missing_right("WRITE", f"topic {name}", config.kafka.options)
            yield problem("canary", text, fix)


def _timestamps(config: Config, admin: AdminClient, existing: Iterable[str]) -> Iterator[CheckResult]:
    roles = {item.topic for item in config.inputs} | {item.topic for item in config.outputs}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(roles & set(existing))]
    if not resources:
        return
    kinds: dict[str, str] = {}
    for resource, future in admin.describe_configs(resources, request_timeout=TIMEOUT_SECONDS).items():
        try:
            kinds[resource.name] = future.result()["message.timestamp.type"].value
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                resource_name = f"topic {resource.name}"
                text, fix = missing_right("DESCRIBE_CONFIGS", resource_name, config.kafka.options)
            else:
                text, fix = f"the settings of {resource.name} cannot be read ({error.args[0].str()})", "try again"
            yield note(
                "timestamps",
                f"{text}, so latency is measured from the instants at which the sidecar reads the records; {fix}",
            )
    created = sorted(name for name, kind in kinds.items() if kind == "CreateTime")
    if created:
        text = (
            f"{', '.join(created)}: timestamps are CreateTime, so latency is measured from when the sidecar reads "
            "the records, accurate to one or two batches; set message.timestamp.type=LogAppendTime for exact values"
        )
        yield note("timestamps", text)
    elif kinds:
        yield ok("timestamps", "LogAppendTime on inputs and outputs: latency can be measured")


def _kept(config: Config, brokers: Brokers, existing: Mapping[str, Topic]) -> Iterator[CheckResult]:
    """Notes on topics whose records may expire before the sidecar reads them, or have already expired."""
    beside = ("faults", "canary")
    read = {topic for place, topic in config.topics_by_place() if not place.startswith(beside)}
    topics = {name: topic for name, topic in existing.items() if name in read}
    if not topics:
        return
    try:
        settings, lookups = brokers.settings(topics), brokers.lookup(topics)
    except BrokersUnreachable as error:
        yield CheckResult("problem", "retention", f"{str(error).rstrip('.')}.")
        return
    found = [note(f"retention of {topic}", text) for topic, text in warnings(config, topics, settings)]
    counts = Counter(place.topic for place in lookups)
    found += [problem(f"ids of {topic}", text, fix) for topic, text, fix in ids_that_repeat(config, counts)]
    for place, lookup in sorted(lookups.items()):
        if lookup.log_start_offset > 0:
            text = f"the log of partition {place.partition} begins at offset {lookup.log_start_offset}"
            found.append(note(f"retention of {place.topic}", f"{text}: earlier records have expired"))
    yield from found or [ok("retention", "no topic is compacted, and no record expires before it can be verified")]


def _group(config: Config, brokers: Brokers, admin: AdminClient) -> Iterator[CheckResult]:
    group = config.engine.consumer_group
    if group is None:
        yield note(
            "consumer group",
            "engine.consumer_group is not set: events count as missing if the engine is behind by timing.missing_after",
        )
        return
    try:
        # A list of groups omits a group that the sidecar may not describe, so the permission is checked first.
        topics = brokers.topics(entry.topic for entry in config.inputs)
        brokers.committed([TopicPartition(one.name, i) for one in topics.values() for i in one.partitions], group)
    except BrokersUnreachable as error:
        yield CheckResult("problem", "consumer group", f"{error}.")
        return
    try:
        # The groups are listed and not described, because versions of Kafka answer differently for an absent group.
        listed = admin.list_consumer_groups(request_timeout=TIMEOUT_SECONDS).result().valid
    except KafkaException as error:
        listing = f"groups cannot be listed ({error.args[0].str()})"
        yield problem("consumer group", listing, "fix that, or leave out engine.consumer_group")
        return
    states = {entry.group_id: entry.state for entry in listed}
    if states.get(group) in (None, ConsumerGroupState.DEAD):
        fix = "start the engine once, or correct engine.consumer_group"
        yield problem("consumer group", f"{group} does not exist", fix)
    else:
        yield ok("consumer group", f"{group}, {states[group].name.lower()}")


def _state(folder: Path) -> Iterator[CheckResult]:
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if nearest.is_dir() and not os.access(nearest, os.W_OK | os.X_OK):
        yield problem("state", f"{nearest} is not writable", "change its permissions, or set another state.path")
        return
    try:
        state_folder.check(folder)
    except state_folder.StateRefused as error:
        # The error's sentence already says how to fix it.
        yield CheckResult("problem", "state", f"{error}.")
        return
    yield disk(nearest)
    mount = mount_of(nearest)
    if mount is not None and NETWORK_TYPES.match(mount.type):
        text = f"the folder is on {mount.point} ({mount.type}); docs/state.md lists the supported network file systems"
        yield note("state", text)
    if nearest != folder:
        yield ok("state", f"{folder} will be created")
    elif _held(folder / state_folder.LOCK):
        fix = "stop that sidecar, or set another state.path"
        yield problem("state", f"another sidecar is running on {folder}", fix)
    elif folder.stat().st_mode & 0o077 and state_folder.is_state(folder):
        yield note(
            "state",
            f"{folder} is writable, and no sidecar uses it; other users can access it (chmod 700 prevents that)",
        )
    else:
        yield ok("state", f"{folder} is writable, and no sidecar uses it")


def _identity(config: Config) -> Iterator[CheckResult]:
    """A problem if the state belongs to another pipeline (`validate` refuses it), and notes on corrected fields."""
    if not (config.state.path / identity.FILE).is_file():
        return
    try:
        for topic in rereading.would_adopt(StateTables(config.state.path), config):
            yield note("state", f"the fields of topic {topic} were corrected: `validate` reads it again from its start")
    except identity.StateMismatch as error:
        # The error's sentence already says how to fix it.
        yield CheckResult("problem", "state", f"{error}.")
    except OSError as error:
        text = f"{config.state.path / identity.FILE} cannot be read ({error.strerror})"
        yield problem("state", text, "change its permissions")


def _held(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        # A shared lock, released at once: it must not keep a sidecar from starting.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _port(config: Config) -> CheckResult:
    address, port = config.metrics.address, config.metrics.port
    try:
        Access(config.metrics, lambda _: None)
    except AccessError as error:
        return CheckResult("problem", "metrics", str(error))
    if port == 0:
        return ok("metrics", "the sidecar takes a free port")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
        except OSError as error:
            fix = "stop the process that listens there, or set metrics.port to another port or to 0 (any free port)"
            return problem("metrics", f"port {port} on {address} is not available ({error.strerror})", fix)
    return ok("metrics", f"port {port} on {address} is free")
