"""The topics of one engine under test, their load, and an exact count of the output without any engine code."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from confluent_kafka import Message, Producer, TopicPartition

from generator import config, run
from testbed.broker import EmbeddedBroker
from tests.engines.reading import consumer, messages

Contribution = tuple[str, int, int]
"""Page, window start in ms since the epoch, id."""


@dataclass(frozen=True)
class Answer:
    """One record of the output topic."""

    page: str
    window_start_ms: int
    ids: tuple[int, ...]
    appended_ms: int


class Topics:
    """Input, output and late topic of one run."""

    def __init__(self, broker: EmbeddedBroker, name: str, *, input_partitions: int = 2) -> None:
        self.broker = broker
        prefix = f"{name}-{uuid.uuid4().hex[:8]}"
        self.input, self.output, self.late = f"{prefix}-click", f"{prefix}-output", f"{prefix}-late"
        self._partitions = {self.input: input_partitions, self.output: 2, self.late: 1}
        broker.create_topics(self._partitions)
        self._ends = consumer(broker.bootstrap_servers)

    def load(self, **more: object) -> config.GeneratorConfig:
        """Return a paced load that runs until it is stopped. Event time follows the clock, and a last event closes
        all windows."""
        return config.parse(
            {
                "kafka": {"bootstrap_servers": self.broker.bootstrap_servers},
                "topic": self.input,
                "events_per_window": 400,
                "start": "now",
                "rate": {"shape": "event_time", "speed": 1},
                "flush_windows": True,
                "delivery": {"linger": "5ms"},
                "limit": {"duration": "200s"},
                **more,
            }
        )

    def send_click(self, number: int, page: str, event_time_ms: int) -> None:
        """Send one extra click, beside the load's."""
        event_time = datetime.fromtimestamp(event_time_ms / 1000, UTC).replace(tzinfo=None)
        click = {"id": number, "timestamp": event_time.isoformat(timespec="milliseconds"), "page": page}
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0})
        producer.produce(self.input, json.dumps(click), json.dumps(page))
        assert producer.flush(30) == 0

    def results_end(self) -> int:
        """Return the sum of the output topic's end offsets over all partitions."""
        found = (self._ends.get_watermark_offsets(partition, 10) for partition in self._of(self.output))
        return sum(high for _, high in found if high is not None)

    def results(self) -> list[Answer]:
        """Return the current content of the output topic at read_committed."""
        answers = []
        for message in self._read(self.output):
            data = json.loads(message.value() or b"")
            ids = (*data["clickIds"], *data["updateIds"])
            answers.append(Answer(data["page"], time_ms(data["windowStart"]), ids, message.timestamp()[1]))
        return answers

    def answered(self) -> Counter[Contribution]:
        """Return how often each id has a result in each cell."""
        return Counter((a.page, a.window_start_ms, i) for a in self.results() for i in a.ids)

    def newest_answer_ms(self) -> int:
        """Return the start of the newest window with a result; 0 before the first one."""
        return max((a.window_start_ms for a in self.results()), default=0)

    def late_ids(self) -> Counter[int]:
        """Return how often each id is on the late topic."""
        return Counter(json.loads(message.value() or b"")["clickId"] for message in self._read(self.late))

    def expected(self, window_ms: int) -> Counter[Contribution]:
        """Return the contributions of the input whose windows the newest event has closed."""
        clicks = [json.loads(message.value() or b"") for message in self._read(self.input)]
        cells = [(c["page"], time_ms(c["timestamp"]) // window_ms * window_ms, c["id"]) for c in clicks]
        newest = max(start for _, start, _ in cells)
        return Counter(cell for cell in cells if cell[1] < newest)

    def read_again(self, group: str) -> set[int]:
        """Return the ids of the input at and past the offsets that ``group`` has committed."""
        committed = self.committed(group)
        return {i for i, (partition, offset) in self.offsets().items() if offset >= committed[partition]}

    def committed(self, group: str) -> dict[int, int]:
        """Return partition of the input -> the offset that ``group`` has committed; negative if it has none."""
        member = consumer(self.broker.bootstrap_servers, group)
        try:
            return {p.partition: p.offset for p in member.committed(self._of(self.input), timeout=30)}
        finally:
            member.close()

    def offsets(self) -> dict[int, tuple[int, int]]:
        """Return id -> partition and offset of its event in the input."""
        return {
            json.loads(message.value() or b"")["id"]: (message.partition() or 0, message.offset() or 0)
            for message in self._read(self.input)
        }

    def _of(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, partition) for partition in range(self._partitions[topic])]

    def _read(self, topic: str) -> list[Message]:
        return messages(self.broker.bootstrap_servers, topic)


class PacedLoad:
    """A load that runs in a thread from construction until `finish`."""

    def __init__(self, load: config.GeneratorConfig) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=run.generate, args=(load,), kwargs={"stop": self._stop}, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Send the last events and wait until all are acknowledged."""
        self._stop.set()
        self._thread.join()


def now_ms() -> int:
    """Return the current time of the clock that the load's event time follows."""
    return time.time_ns() // 1_000_000


def time_ms(text: str) -> int:
    """Convert PGVal's time (UTC without a zone) to milliseconds since the epoch."""
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def until(holds: Callable[[], bool], seconds: float, complaint: Callable[[], object]) -> None:
    """Wait until ``holds``; fail with ``complaint`` if it does not hold in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, complaint()
        time.sleep(0.002)
