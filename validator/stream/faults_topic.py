"""The faults topic: what was broken, when, as any chaos tool may tell it (CONTRACT, "Faults topic").

Faults are few; they are read beside the stream, from the topic's start, and kept in the state (`fault_records`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from validator.config.model import Config
from validator.model.classes import EXPECTABLE
from validator.model.cut import cut
from validator.model.kafka_refusals import missing_right
from validator.stream.clients import for_librdkafka, made

_MOST_PER_POLL: Final = 1_000
_POLL_SECONDS_MAX: Final = 1.0
"""A poll waits no longer; what an open transaction holds back comes with a later one."""
_CONSUME_SECONDS: Final = 0.02


class FaultsTopic:
    """A reader of one faults topic; `poll` takes what is new."""

    def __init__(self, config: Config, say: Callable[[str], None]) -> None:
        assert config.faults is not None
        self._topic = config.faults.topic
        ours = {"group.id": "streamproof-faults", "enable.auto.commit": False, "enable.partition.eof": True}
        self._consumer = made(Consumer, for_librdkafka(config, {**ours, "log_level": 2}))
        self._options = config.kafka.options
        self._say = say
        self._complained = False
        self._assigned = False
        self._next: dict[int, int] = {}
        self.undecodable = 0

    def poll(self) -> list[dict[str, object]]:
        """All new records as rows of the faults table (without ``batch``); an absent topic has none."""
        if not self._assigned and not self._assign():
            return []
        rows: list[dict[str, object]] = []
        ends = self._ends()
        deadline = time.monotonic() + _POLL_SECONDS_MAX
        self._may_read = True
        while self._may_read and any(self._next.get(p, 0) < end for p, end in ends.items()):
            if time.monotonic() >= deadline:
                break
            for message in self._consumer.consume(_MOST_PER_POLL, timeout=_CONSUME_SECONDS):
                row = self._taken(message)
                if row is not None:
                    rows.append(row)
        return rows

    def begin_anew(self) -> None:
        """Read the topic from its start at the next poll: it was created, or recreated."""
        self._consumer.unassign()
        self._assigned, self._next = False, {}

    def _taken(self, message: Message) -> dict[str, object] | None:
        error, value = message.error(), message.value()
        partition, offset = int(message.partition() or 0), int(message.offset() or 0)
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                self._next[partition] = offset
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                self._may_read = False
                self._complain()
            return None
        self._next[partition] = offset + 1
        row = None if value is None else _row(value)
        if row is None:
            self.undecodable += value is not None
            return None
        row.update(topic=self._topic, partition=partition, offset=offset)
        return row

    def _ends(self) -> dict[int, int]:
        """Partition -> the end to read to; without an answer, what is known to be read."""
        ends = {}
        for assigned in self._consumer.assignment():
            try:
                low, high = self._consumer.get_watermark_offsets(assigned, timeout=_POLL_SECONDS_MAX)
            except KafkaException:
                continue
            if high > low:
                ends[assigned.partition] = high
        return ends

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()

    def _assign(self) -> bool:
        try:
            metadata = self._consumer.list_topics(self._topic, timeout=5.0).topics[self._topic]
        except KafkaException:
            return False
        if metadata.error is not None:
            if metadata.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                self._complain()
            return False
        self._consumer.assign([TopicPartition(self._topic, p, OFFSET_BEGINNING) for p in metadata.partitions])
        self._assigned = True
        return True

    def _complain(self) -> None:
        if not self._complained:
            lack = ": ".join(missing_right("READ", f"topic {self._topic}", self._options))
            self._say(f"no fault is read until it can be: {lack}")
        self._complained = True


def _row(value: bytes) -> dict[str, object] | None:
    """A record as columns of the faults table; None for one that is none, or that the table cannot hold."""
    try:
        record = json.loads(value)
        time = datetime.fromisoformat(record["time"])
        if time.tzinfo is None or record["state"] not in ("injected", "verified", "heal_started", "healed"):
            return None
        row: dict[str, object] = {
            "id": cut(str(record["id"])),
            "name": cut(str(record.get("name") or record["kind"])),
            "kind": cut(str(record["kind"])),
            "target": cut(str(record["target"])),
            "state": str(record["state"]),
            "time_us": int(time.timestamp() * 1_000_000),
            "plan": cut(str(record.get("plan", ""))),
            "seed": int(record.get("seed") or 0),
            "parameters": json.dumps(record.get("parameters", {}), sort_keys=True),
            "expects": json.dumps(_expects(record.get("expects"))),
        }
        # A text may be half a character (a lone surrogate), and no column holds that.
        "".join(value for value in row.values() if isinstance(value, str)).encode()
        return row if -(2**63) <= int(str(row["seed"])) < 2**63 else None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def _expects(told: object) -> list[str]:
    """The classes that a record names; another word mutes nothing."""
    return sorted(name for name in EXPECTABLE if name in told) if isinstance(told, list) else []
