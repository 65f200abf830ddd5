"""Finds an example for each topic in doubt or with undecodable records: such a record, with every field that does not
fit it.

The record is read again from Kafka by its position, in a separate process with limited memory. No batch waits for it,
and its size does not matter. An example affects no verdict.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from validator.config.model import Config
from validator.core.doubts import topics_in_doubt
from validator.model.frontier import PartitionId
from validator.model.progress import IngestProgress
from validator.stream.bounded import START_SECONDS_MAX, Ended, bounded
from validator.stream.doubt_sentences import Example
from validator.stream.sampling import why_undecodable

_SECONDS_MAX: Final = (10, 20, 40)
"""Limit of each attempt of a search. A busy host or broker may exceed the first."""
_WAIT_SECONDS_MAX: Final = sum(START_SECONDS_MAX + seconds for seconds in _SECONDS_MAX)
_JOIN_SECONDS: Final = 0.1
_PAUSE_SECONDS: Final = 60
"""Least time between the searches for two examples of a topic."""


@dataclass
class _Search:
    """The search for one topic's example. ``attempts``: number of attempts so far."""

    partition_id: PartitionId
    offset: int
    attempts: int = 0
    thread: threading.Thread | None = None
    unanswered: threading.Event = field(default_factory=threading.Event)
    """Set while the last attempt has ended without an answer and a further one may follow."""

    @property
    def is_running(self) -> bool:
        return self.thread is not None and self.thread.is_alive()


class Examples:
    """Looks for one example of each topic in doubt, once per doubt; again if a search ends without an answer."""

    def __init__(self, config: Config, *, found: Callable[[str, Example], None]) -> None:
        """``found``: called with a topic and its example, in another thread."""
        self._config = config
        self._found = found
        self._looking: dict[str, _Search] = {}
        self._looked: dict[str, float] = {}

    def look(
        self, progress: IngestProgress, unreadable: dict[PartitionId, int], hidden: Iterable[str] = ()
    ) -> frozenset[str]:
        """Start a search for each topic newly in doubt or with hidden records, and repeat unanswered ones. Returns all
        of these topics.

        ``unreadable``: partition -> offset of a record that did not decode. ``hidden``: the topics of records that did
        not decode and are not settled.
        """
        in_doubt = frozenset(one.topic for one in topics_in_doubt(progress)).union(hidden)
        for topic in self._looking.keys() - in_doubt:
            del self._looking[topic]
        self._repeat()
        for partition, offset in sorted(unreadable.items()):
            if partition.topic in in_doubt and self._may_look(partition, unreadable):
                self._looking[partition.topic] = search = _Search(partition, offset)
                self._start(search)
        return in_doubt

    def _may_look(self, partition: PartitionId, unreadable: Mapping[PartitionId, int]) -> bool:
        """Return whether the topic of ``partition`` needs an example: it has none, or its record was settled."""
        last = self._looking.get(partition.topic)
        if last is not None and (last.is_running or unreadable.get(last.partition_id) == last.offset):
            return False
        # Dead letters may settle records in each batch, and each search starts a process.
        now = time.monotonic()
        if now - self._looked.get(partition.topic, -_PAUSE_SECONDS) < _PAUSE_SECONDS:
            return False
        self._looked[partition.topic] = now
        return True

    def wait(self, stop: threading.Event) -> None:
        """Wait for the searches to end, and repeat unanswered ones. Ends in a limited time, or if ``stop`` is set."""
        deadline = time.monotonic() + _WAIT_SECONDS_MAX
        while not stop.is_set() and time.monotonic() < deadline:
            running = [one.thread for one in self._looking.values() if one.is_running]
            # In this order: a search that ends after the first line is looked at again in the next turn.
            if not self._repeat() and not running:
                return
            for thread in running:
                if thread is not None:
                    thread.join(_JOIN_SECONDS)

    def _repeat(self) -> bool:
        """Start the next attempt of the unanswered searches. Returns whether there are any."""
        unanswered = [one for one in self._looking.values() if one.unanswered.is_set()]
        for search in unanswered:
            self._start(search)
        return bool(unanswered)

    def _start(self, search: _Search) -> None:
        def attempt(number: int) -> None:
            if not self._look(search.partition_id, search.offset, number):
                search.unanswered.set()

        search.unanswered.clear()
        search.thread = threading.Thread(
            target=attempt,
            args=(search.attempts,),
            name=f"streamproof-example-{search.partition_id.topic}",
            daemon=True,
        )
        search.attempts += 1
        search.thread.start()

    def _look(self, partition: PartitionId, offset: int, attempt: int = 0) -> bool:
        """Look for an example. Returns False if this attempt has no answer and a further one may follow."""
        topic, number = partition.topic, partition.partition
        self._found(topic, Example(number, offset))
        seconds = _SECONDS_MAX[attempt]
        try:
            # The process ends first, so that a record which is not received in time is not taken for an expired one.
            [why] = bounded(seconds, why_undecodable, self._config, topic, number, offset, 2.0 * seconds)
        except Ended as ended:
            if not ended.by_memory and attempt + 1 < len(_SECONDS_MAX):
                return False
            self._found(topic, Example(number, offset, unread=str(ended)))
            return True
        if why:
            self._found(topic, Example(number, offset, why))
        return True
