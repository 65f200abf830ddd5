"""Finds for each topic in doubt an example: a record that does not decode, with the field that does not fit and why.

The record is read again from Kafka by its position, in a separate process with limited memory. No batch waits for it,
and its size does not matter. An example affects no verdict.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from validator.config.model import Config
from validator.model.configuration_doubt import topics_in_doubt
from validator.model.frontier import PartitionId
from validator.model.progress import IngestProgress
from validator.stream.bounded import Ended, bounded
from validator.stream.doubt_sentences import Example
from validator.stream.sampling import why_undecodable

_SECONDS_MAX: Final = 10.0


class Examples:
    """Looks for one example of each topic in doubt, once per doubt."""

    def __init__(self, config: Config, *, found: Callable[[str, Example], None]) -> None:
        """``found``: called with a topic and its example, in another thread."""
        self._config = config
        self._found = found
        self._looking: dict[str, threading.Thread] = {}

    def look(self, progress: IngestProgress, unreadable: dict[PartitionId, int]) -> frozenset[str]:
        """Start a search for each topic newly in doubt. Returns all topics in doubt.

        ``unreadable``: partition -> offset of a record that did not decode.
        """
        in_doubt = frozenset(one.topic for one in topics_in_doubt(progress))
        for topic in self._looking.keys() - in_doubt:
            del self._looking[topic]
        for place, offset in sorted(unreadable.items()):
            if place.topic in in_doubt and place.topic not in self._looking:
                thread = threading.Thread(
                    target=self._look, args=(place, offset), name=f"streamproof-example-{place.topic}", daemon=True
                )
                self._looking[place.topic] = thread
                thread.start()
        return in_doubt

    def wait(self) -> None:
        """Wait for the searches to end, each for a limited time."""
        for thread in self._looking.values():
            thread.join(_SECONDS_MAX + 2)

    def _look(self, place: PartitionId, offset: int) -> None:
        self._found(place.topic, Example(place.partition, offset))
        try:
            [why] = bounded(
                _SECONDS_MAX + 1, why_undecodable, self._config, place.topic, place.partition, offset, _SECONDS_MAX
            )
        except Ended as ended:
            if ended.by_memory:
                self._found(place.topic, Example(place.partition, offset, reason=str(ended)))
            return
        if why is not None:
            self._found(place.topic, Example(place.partition, offset, why.field, why.path, why.reason))
