"""The canary's producer: a thread that plants a round at each multiple of `canary.every`.

It does not affect the sidecar: its queues and waits are bounded. A round that is not completely written in time counts
as not planted; an outage of the brokers has no other consequence.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from validator.config.model import Config
from validator.measure.canary_rounds import Round
from validator.model.kafka_refusals import missing_right
from validator.stream.clients import for_librdkafka

PARTITION: Final = 0
"""The partition of both topics that the canary uses."""
_WRITE_SECONDS_MAX: Final = 10.0
_POLL_SECONDS: Final = 0.2
_RECORDS_HELD_MAX: Final = 1_000


class CanaryWriter:
    """Plants rounds between `begin` and `pause`. `planted` returns those that are in the log."""

    def __init__(
        self,
        config: Config,
        round_of: Callable[[int], Round],
        *,
        now_us: Callable[[], int],
        say: Callable[[str], None],
    ) -> None:
        """``round_of``: number of a round -> the round."""
        assert config.canary is not None
        self._canary, self._missing_after_us = config.canary, config.timing.missing_after_us
        ours = {
            "client.id": "streamproof-canary",
            # A retried record must not be written twice: it would be a violation that the canary does not know of.
            "enable.idempotence": True,
            "message.timeout.ms": int(_WRITE_SECONDS_MAX * 1000),
            "queue.buffering.max.messages": _RECORDS_HELD_MAX,
            "log_level": 2,
        }
        self._options = for_librdkafka(config, ours)
        self._users = config.kafka.options
        self._round_of = round_of
        self._now_us = now_us
        self._say = say
        self._producer: Producer | None = None
        self._reading = threading.Event()
        self._pauses, self._lock = 0, threading.Lock()
        self._stop = threading.Event()
        self._planted: queue.SimpleQueue[tuple[Round, int]] = queue.SimpleQueue()
        self._complained = False
        self._thread = threading.Thread(target=self._run, name="streamproof-canary", daemon=True)

    def begin(self) -> None:
        """Start planting: the query reads the topics from now on."""
        self._reading.set()
        if self._thread.ident is None:
            self._thread.start()

    def pause(self) -> None:
        """Stop planting until `begin`: no query reads the topics, and writing must not create an absent topic.

        A round that is being written counts as not planted: the next query may begin after its first records.
        """
        with self._lock:
            self._reading.clear()
            self._pauses += 1

    def planted(self) -> list[tuple[Round, int]]:
        """The rounds written completely since the last call, each with an instant (microseconds) before its sending."""
        found = []
        while not self._planted.empty():
            found.append(self._planted.get_nowait())
        return found

    def close(self) -> None:
        """End the thread. A round that is being written is abandoned."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(5 * _POLL_SECONDS)

    def _run(self) -> None:
        every_us, last = self._canary.every_us, 0
        while not self._stop.is_set():
            now_us = self._now_us()
            number = now_us // every_us
            # If the clock is set back, no round is planted a second time.
            if number > last and last:
                last, pauses = number, self._pauses
                if self._reading.is_set():
                    self._plant(self._round_of(number), pauses)
                continue
            last = last or number
            self._stop.wait(((max(number, last) + 1) * every_us - now_us) / 1e6)

    def _plant(self, round_: Round, pauses: int) -> None:
        """Write a round. ``pauses``: number of pauses before it was decided to write it."""
        sent_us = self._now_us()
        failure = self._written(round_, pauses)
        # Results that came later would rightly be missing for some time.
        in_time = self._now_us() - sent_us < self._missing_after_us
        if failure is None:
            with self._lock:
                if in_time and self._pauses == pauses:
                    self._planted.put((round_, sent_us))
            self._complained = False
        elif not self._stop.is_set():
            self._drop_producer()
            if not self._complained:
                self._say(
                    f"the canary cannot write to {self._canary.input} and {self._canary.output} ({failure}): "
                    "nothing is planted until it can"
                )
            self._complained = True

    def _written(self, round_: Round, pauses: int) -> str | None:
        """Write a round. Returns None once all its records are in the log or a pause ended the writing, else the reason
        for the failure."""
        failures: list[str] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(self._why(error))

        deadline = time.monotonic() + _WRITE_SECONDS_MAX
        # As those of an engine, the results follow their events. Otherwise a batch could read a result whose events are
        # not in the log yet, and its ids would be unknown.
        for topic, values in ((self._canary.input, round_.events()), (self._canary.output, round_.results())):
            if self._pauses != pauses:
                # The topic may not exist any more.
                return None
            try:
                if self._producer is None:
                    self._producer = Producer(self._options)
                for value in values:
                    self._producer.produce(topic, value, partition=PARTITION, on_delivery=delivered)
            except (KafkaException, BufferError) as error:
                return self._why(error.args[0]) if isinstance(error, KafkaException) else str(error)
            while self._producer.flush(_POLL_SECONDS):
                if self._stop.is_set() or time.monotonic() > deadline:
                    return "the brokers did not answer in time"
            if failures:
                return failures[0]
        return None

    def _why(self, error: KafkaError) -> str:
        """The failure as a clause."""
        topics = f"topics {self._canary.input} and {self._canary.output}"
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return ": ".join(missing_right("WRITE", topics, self._users))
        if error.code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            return ": ".join(missing_right("IDEMPOTENT_WRITE", "the cluster", self._users))
        return str(error.str())

    def _drop_producer(self) -> None:
        """Discard a failed idempotent producer, which may not recover. The next round creates a new one."""
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(_POLL_SECONDS)
            self._producer = None
