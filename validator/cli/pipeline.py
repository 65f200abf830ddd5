"""What a pipeline must offer before it can be verified: brokers, topics, a state folder, a free port."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from validator.cli.diagnosis import Finding, note, ok, problem
from validator.cli.machine import disk
from validator.config.model import Config
from validator.model.classes import Guarantee
from validator.state import identity
from validator.stream.brokers import librdkafka_options

TIMEOUT_SECONDS: Final = 8.0
LOCK_FILE: Final = "lock"


def check(config: Config) -> Iterator[Finding]:
    """Each check of the pipeline in turn; what needs the brokers is left out where they do not answer."""
    yield ok("configuration", f"pipeline {config.pipeline}, {config.guarantee.value}")
    yield _isolation(config)
    yield from _state(config.state.path)
    yield from _identity(config)
    yield _port(config)
    try:
        admin = AdminClient(
            {
                **librdkafka_options(config.kafka.options),
                "bootstrap.servers": config.kafka.bootstrap_servers,
                "socket.timeout.ms": int(TIMEOUT_SECONDS * 1000),
                "log_level": 0,  # what goes wrong is said by the findings
            }
        )
    except KafkaException as error:
        yield problem("brokers", f"the client options do not fit ({error.args[0].str()})", "mend kafka.options")
        return
    try:
        there = admin.list_topics(timeout=TIMEOUT_SECONDS)
    except KafkaException as error:
        servers = config.kafka.bootstrap_servers
        mend = "start them, or mend kafka.bootstrap_servers or the security options"
        yield problem("brokers", f"{servers} does not answer ({error.args[0].str()})", mend)
        return
    yield ok("brokers", f"{len(there.brokers)} at {config.kafka.bootstrap_servers}")
    existing = {name for name, topic in there.topics.items() if topic.error is None}
    yield from _topics(config, {name: len(there.topics[name].partitions) for name in existing})
    yield from _timestamps(config, admin, existing)
    yield from _group(config, admin)


def _isolation(config: Config) -> Finding:
    isolation = config.kafka.isolation_level
    if isolation == "read_uncommitted" and config.guarantee is Guarantee.EXACTLY_ONCE:
        said = (
            "read_uncommitted counts what aborted transactions wrote: a correct engine then looks like one that repeats"
        )
        return note("isolation", said)
    return ok("isolation", isolation)


def _topics(config: Config, partitions: Mapping[str, int]) -> Iterator[Finding]:
    for place, topic in config.topics_by_place():
        count = partitions.get(topic)
        if count is not None:
            yield ok(f"topic {topic}", f"{count} partitions" if count != 1 else "1 partition")
        elif place.startswith("faults"):
            yield note(f"topic {topic}", "it does not exist yet; faults are told once it does")
        else:
            yield problem(f"topic {topic}", "it does not exist", f"create it or mend {place}")


def _timestamps(config: Config, admin: AdminClient, existing: Iterable[str]) -> Iterator[Finding]:
    roles = {item.topic for item in config.inputs} | {item.topic for item in config.outputs}
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(roles & set(existing))]
    if not asked:
        return
    kinds: dict[str, str] = {}
    for resource, future in admin.describe_configs(asked, request_timeout=TIMEOUT_SECONDS).items():
        try:
            kinds[resource.name] = future.result()["message.timestamp.type"].value
        except KafkaException as error:
            yield note("timestamps", f"the settings of {resource.name} may not be read ({error.args[0].str()})")
    created = sorted(name for name, kind in kinds.items() if kind == "CreateTime")
    if created:
        said = f"{', '.join(created)}: CreateTime, so record times prove nothing and there will be no latency; "
        mend = "set message.timestamp.type=LogAppendTime on inputs and outputs to have it"
        yield note("timestamps", said + mend)
    elif kinds:
        yield ok("timestamps", "LogAppendTime on inputs and outputs: latency can be measured")


def _group(config: Config, admin: AdminClient) -> Iterator[Finding]:
    group = config.engine.consumer_group
    if group is None:
        yield note("consumer group", "engine.consumer_group is not set: an engine that is behind will look overdue")
        return
    try:
        # Listing, not describing: of a group that is not there, brokers say different things, a new one nothing at all.
        listed = admin.list_consumer_groups(request_timeout=TIMEOUT_SECONDS).result().valid
    except KafkaException as error:
        yield problem(
            "consumer group", f"groups cannot be listed ({error.args[0].str()})", "mend that or leave the group out"
        )
        return
    states = {entry.group_id: entry.state for entry in listed}
    if states.get(group) in (None, ConsumerGroupState.DEAD):
        mend = "start the engine once, or mend engine.consumer_group"
        yield problem("consumer group", f"{group} does not exist", mend)
    else:
        yield ok("consumer group", f"{group}, {states[group].name.lower()}")


def _state(folder: Path) -> Iterator[Finding]:
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not nearest.is_dir():
        yield problem("state", f"{nearest} is a file", "set state.path to a folder")
        return
    if not os.access(nearest, os.W_OK | os.X_OK):
        yield problem("state", f"{nearest} may not be written", "change its permissions, or set state.path elsewhere")
        return
    yield disk(nearest)
    if nearest != folder:
        yield ok("state", f"{folder} will be made")
    elif _held(folder / LOCK_FILE):
        mend = "stop that one, or give this one a state.path of its own"
        yield problem("state", f"another sidecar is running on {folder}", mend)
    else:
        yield ok("state", f"{folder} is writable and free")


def _identity(config: Config) -> Iterator[Finding]:
    """Where the state is another pipeline's: `validate` would refuse it."""
    if not (config.state.path / identity.FILE).is_file():
        return
    try:
        identity.check_or_write(config.state.path, config)
    except identity.StateMismatch as error:
        # Its sentence holds the mend already.
        yield Finding("problem", "state", f"{error}.")
    except OSError as error:
        said = f"{config.state.path / identity.FILE} cannot be read ({error.strerror})"
        yield problem("state", said, "change its permissions")


def _held(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        # Shared, and let go at once: it must never keep a sidecar from starting for longer than this call.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _port(config: Config) -> Finding:
    address, port = config.metrics.address, config.metrics.port
    if port == 0:
        return ok("metrics", "a free port will be taken")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
        except OSError as error:
            mend = "end what listens there, or set metrics.port to another or to 0"
            return problem("metrics", f"port {port} on {address} cannot be had ({error.strerror})", mend)
    return ok("metrics", f"port {port} on {address} is free")
