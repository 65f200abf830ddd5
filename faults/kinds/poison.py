"""Fault of a topic: records that a reader of events cannot decode. Acknowledged records are counted."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException, Message, Producer

from faults.backends import processes
from faults.backends.kafka import Options, TopicClient, producer
from faults.errors import FaultRefused, Unreachable
from faults.facts import Facts, KnownProcess
from faults.fault import Fault
from faults.kinds.base import for_each
from faults.parameters import PoisonParameters
from faults.targets import TopicTarget

FORMS: Final[dict[str, bytes | None]] = {
    "not_utf8": b"\xff\xfe\x00 streamproof poison",
    "not_json": b'{"streamproof": "poison", "id": ',
    "no_object": b'["streamproof", "poison"]',
    "empty": b"",
    "null": None,
}
"""Form -> value of the record."""
_FLUSH_SECONDS_MAX: Final = 10.0


class Poison:
    """Writes undecodable records at a rate, until the fault is healed or all records are sent."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:  # noqa: ARG002 - one signature for all
        assert isinstance(fault.parameters, PoisonParameters)
        self.facts = facts
        self._parameters = fault.parameters
        self._targets = {n: t for n, t in fault.targets.items() if isinstance(t, TopicTarget)}
        form = fault.parameters.form
        self._values = cycle(FORMS.values() if form == "each" else [FORMS[form]])
        self._producers: dict[str, Producer] = {}
        self._sent = 0
        self._failed: str | None = None
        self._started = 0.0

    def prepare(self) -> None:
        """Check that the topics exist, and put this process into the facts as the sender. Raises FaultRefused."""
        for name, target in self._targets.items():
            TopicClient(name, target).partitions()
        us = processes.status_of(os.getpid())
        assert us is not None
        self.facts = Facts(processes=(KnownProcess(target="fault runner", pid=us.pid, started=us.started),))

    def inject(self) -> None:
        """Create the producers and send the first record."""
        for name, target in self._targets.items():
            more: Options = {"acks": "all", "enable.idempotence": True, "linger.ms": 0}
            self._producers[name] = producer(target.bootstrap_servers, target.options_file, more)
        self._started = time.monotonic()
        self.maintain()

    def maintain(self) -> None:
        """Send the records that are due by now to each topic."""
        elapsed = time.monotonic() - self._started
        due = min(self._parameters.at_most, 1 + int(elapsed * self._parameters.per_second))
        while self._sent < due:
            value = next(self._values)
            for name, writer in self._producers.items():
                writer.produce(self._targets[name].topic, value, on_delivery=self._noted(name))
            self._sent += 1
        for writer in self._producers.values():
            writer.poll(0)

    def is_active(self) -> bool:
        """Whether a record is acknowledged in each topic, and the high watermarks are past all acknowledged records."""
        for writer in self._producers.values():
            writer.poll(0)
        return all(self.facts.records.get(name, 0) > 0 for name in self._targets) and self._all_are_there()

    def heal(self) -> None:
        """Stop sending, and wait for the outstanding acknowledgements.

        Raises FaultRefused if the broker rejected a record, Unreachable if it does not answer.
        """

        def finish(name: str) -> None:
            left = self._producers[name].flush(_FLUSH_SECONDS_MAX)
            if self._failed is not None:
                raise FaultRefused(f"{name}: the broker did not acknowledge all records ({self._failed}).")
            if left:
                raise Unreachable(f"{name}: the broker did not acknowledge all records (it does not answer).")

        for_each(self._producers, finish)
        self._producers.clear()

    def is_healed(self) -> bool:
        """Whether all records of this process are acknowledged; in any other process, whether the sender has ended."""
        if self._sent:
            return not self._producers and all(self.facts.records[name] == self._sent for name in self._targets)
        return not any(processes.is_alive(sender) and sender.pid != os.getpid() for sender in self.facts.processes)

    def _all_are_there(self) -> bool:
        try:
            for name, target in self._targets.items():
                topic = TopicClient(name, target)
                for place, offset in self.facts.offsets.items():
                    of, _, partition = place.rpartition("/")
                    if of == target.topic and topic.high_watermark(int(partition)) <= offset:
                        return False
        except KafkaException:
            return False
        return True

    def _noted(self, name: str) -> Callable[[object, Message], None]:
        def note(error: object, message: Message) -> None:
            if error is not None:
                self._failed = str(error)
                return
            place, offset = f"{message.topic()}/{message.partition()}", message.offset()
            assert offset is not None
            known = self.facts.offsets
            self.facts = self.facts.model_copy(
                update={
                    "offsets": {**known, place: max(offset, known.get(place, -1))},
                    "records": {**self.facts.records, name: self.facts.records.get(name, 0) + 1},
                }
            )

        return note
