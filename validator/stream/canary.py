"""The canary: rounds of known violations, planted on its own two topics, show whether the sidecar finds them.

The canary's sources are in the pipeline's query. Its progress, cells and verdicts are separate, and only in memory.
After a restart, and after an absence of its topics, the canary begins at the ends of the topics: rounds planted before
are forgotten and never judged (docs/decisions/0019).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.config.model import Config, Input, Output
from validator.core.judging import Judging, partition_offsets_of
from validator.core.totals import CellTotals
from validator.measure.canary_recall import CanaryRules, Outcome, Recall
from validator.measure.canary_rounds import CELLS, Round
from validator.model.frontier import Lookup, PartitionId
from validator.model.progress import IngestProgress, TimeRules
from validator.model.snapshot import CanaryMeasures
from validator.oracles.kinds import canary_oracle
from validator.reconcile.facts import Side
from validator.reconcile.judge import VIOLATIONS, Rules
from validator.settings.durations import format_duration
from validator.state.known_facts import KnownFacts
from validator.stream.brokers import Brokers, BrokersUnreachable, Topic
from validator.stream.canary_writer import PARTITION, CanaryWriter
from validator.stream.commit_rows import summaries
from validator.stream.sources import Source
from validator.stream.start_offsets import first_frontier

SIDELINED_US_MIN: Final = 30_000_000
SIDELINED_US_MAX: Final = 600_000_000
"""Bounds of the time for which the canary is left out after failures. It doubles each time, until a round is judged."""
_FIELDS: Final = {
    "input": {"id": "id", "key": "key", "event_time": {"path": "time", "unit": "us"}},
    "output": {"key": "key", "window_start": {"path": "window", "unit": "us"}, "ids": "ids"},
}
"""Paths of the fields in the records of `validator.measure.canary_rounds`."""


class Planting(Protocol):
    """Plants the rounds. `validator.stream.canary_writer.CanaryWriter` implements it."""

    def begin(self) -> None:
        """Start planting: the query reads the topics from now on."""

    def pause(self) -> None:
        """Stop planting until `begin`."""

    def planted(self) -> list[tuple[Round, int]]:
        """The rounds written completely since the last call, each with an instant (microseconds) before its sending."""

    def close(self) -> None:
        """Stop planting for good."""


def canary_of(config: Config, *, now_us: Callable[[], int], say: Callable[[str], None]) -> CanaryWatch | None:
    """The canary of a run; None if none is configured."""
    if config.canary is None:
        return None
    owner, every_us = f"{config.pipeline}@{now_us()}", config.canary.every_us
    writer = CanaryWriter(config, lambda number: Round(number, every_us, owner), now_us=now_us, say=say)
    return CanaryWatch(config, writer, now_us=now_us, say=say)


class CanaryWatch:
    """The canary of one run. Its `sources` are empty while it is not read."""

    def __init__(
        self, config: Config, writer: Planting, *, now_us: Callable[[], int], say: Callable[[str], None]
    ) -> None:
        assert config.canary is not None
        self._canary = config.canary
        self._rules = Rules(
            oracle=canary_oracle(self._canary.every_us),
            overdue_after_us=config.timing.overdue_after_us,
            missing_after_us=config.timing.missing_after_us,
            collapse=any(entry.duplicates == "collapse" for entry in config.inputs),
        )
        self._time_rules = TimeRules(max_disorder_us=0, idle_after_us=config.timing.idle_after_us)
        self._due = CanaryRules(config.timing.missing_after_us, self._canary.found_within_us, self._canary.every_us)
        self._recall = Recall(self._due, began_us=now_us())
        self._now_us = now_us
        self._say = say
        self._writer = writer
        # Results first, as in the pipeline's sources (`sources_of`).
        self._sources = (
            Source(
                Side.OUTPUT,
                self._canary.output,
                Output.model_validate({"topic": self._canary.output, "fields": _FIELDS["output"]}),
            ),
            Source(
                Side.INPUT,
                self._canary.input,
                Input.model_validate({"topic": self._canary.input, "fields": _FIELDS["input"]}),
            ),
        )
        self._progress: IngestProgress | None = None
        self._judging = self._nothing_judged()
        self._topics: Mapping[str, Topic] = {}
        self._ends: Mapping[PartitionId, int] = {}
        self._sidelined_us = SIDELINED_US_MIN
        self._sidelined_until_us = 0
        self._reported = ""

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of both topics, whether or not they exist."""
        return tuple(source.topic for source in self._sources)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources that the query reads for the canary now."""
        return self._sources if self._topics else ()

    @property
    def starts(self) -> dict[PartitionId, int]:
        """Next offset of every partition of `sources`. Partitions that the canary does not use begin at their ends."""
        return {**self._ends, **self.next_offsets}

    @property
    def next_offsets(self) -> dict[PartitionId, int]:
        """Next offset of each partition that the canary uses."""
        frontiers = self._progress.frontiers if self._progress is not None and self._topics else {}
        return {partition: frontier.next_offset for partition, frontier in frontiers.items()}

    def open(self, brokers: Brokers) -> None:
        """Prepare a new query: continue at the offsets of the last one, or begin at the ends of the topics."""
        self._topics = {}
        self._writer.pause()
        if self._now_us() < self._sidelined_until_us:
            return
        try:
            found = brokers.topics(self.topics)
            lookups = brokers.lookup(found)
        except BrokersUnreachable as error:
            # The lookups of the pipeline's topics succeeded just before, so the run continues without the canary.
            self.sideline(str(error))
            return
        absent = [topic for topic in self.topics if topic not in found]
        if absent:
            self._progress = None
            self._say_once(f"the canary's topic {absent[0]} does not exist: nothing is planted until it does")
            return
        self._ends = {partition: lookup.last_stable_offset for partition, lookup in lookups.items()}
        mine = {partition: lookup for partition, lookup in lookups.items() if partition.partition == PARTITION}
        if not _goes_on(self._progress, mine):
            self._begin(mine)
        self._topics = found
        self._reported = ""
        self._writer.begin()

    def sideline(self, why: str) -> None:
        """Leave the canary out for some time, so that it does not keep the pipeline from being judged."""
        self._topics, self._progress = {}, None
        self._writer.pause()
        self._sidelined_until_us = self._now_us() + self._sidelined_us
        self._say_once(f"the canary is paused for {format_duration(self._sidelined_us)}: {why}")
        self._sidelined_us = min(2 * self._sidelined_us, SIDELINED_US_MAX)

    def wants_query(self, topics: Mapping[str, Topic]) -> bool:
        """Whether the existing ``topics`` require another query: the canary's own appeared, vanished or were recreated.

        If the canary is left out, a query is required as soon as both topics exist and the pause of the canary is over.
        """
        found = {name: topics[name].id for name in self.topics if name in topics}
        if self._topics:
            return found != {name: topic.id for name, topic in self._topics.items()}
        return len(found) == len(self.topics) and self._now_us() >= self._sidelined_until_us

    def read_of(self, topics: Mapping[str, Topic]) -> dict[str, Topic]:
        """The topics among ``topics`` that the query reads for the canary."""
        return {name: topics[name] for name in self._topics if name in topics}

    def moves(self, ends: Mapping[PartitionId, int]) -> bool:
        """Whether a batch with these ``ends`` has offsets of the canary."""
        return any(ends.get(partition, 0) > offset for partition, offset in self.next_offsets.items())

    def split_facts(self, facts: pa.Table) -> tuple[pa.Table, pa.Table]:
        """A batch's facts, separated into the canary's and the pipeline's."""
        mine = pc.is_in(facts["topic"], value_set=pa.array(self.topics, pa.string()))
        return facts.filter(mine), facts.filter(pc.invert(mine))

    def judge_batch(
        self,
        facts: pa.Table | None,
        lookup_us: int,
        lookups: Mapping[PartitionId, Lookup],
        ends: Mapping[PartitionId, int],
    ) -> None:
        """Judge a batch's facts of the canary, with rules like the pipeline's but separate cells and time."""
        if self._progress is None or not self._topics:
            return
        before = self._progress
        # A batch without offsets of the pipeline is not committed, so consecutive batches may have equal instants.
        at_us = max(lookup_us, before.lookup_us + 1)
        progress = before.looked_up(before.batch + 1, at_us, lookups, ends)
        mine = None if facts is None else _used(facts, progress.batch)
        progress = progress.with_facts(summaries(mine) if mine is not None else [])
        self._judging.absorb(mine, progress.clock(), partition_offsets_of(progress, reports_unconsumed=False))
        self._progress = progress
        for round_, planted_us in self._writer.planted():
            self._recall.planted(round_, planted_us)
        for outcome in self._recall.judged(self._now_us(), self._on_record()):
            self._say_once(_sentence(outcome))
            self._sidelined_us = SIDELINED_US_MIN
        self._forget_old(at_us)

    def measures(self) -> CanaryMeasures:
        """The canary's measures, for publication."""
        return self._recall.measures()

    def close(self) -> None:
        """Stop planting for good."""
        self._writer.close()

    def _begin(self, lookups: Mapping[PartitionId, Lookup]) -> None:
        side = {source.topic: source.side for source in self._sources}
        now_us = self._now_us()
        self._progress = IngestProgress(
            self._time_rules,
            frontiers={
                # The unread records are of forgotten rounds or of another owner, so no event of this owner is hidden.
                partition: replace(
                    first_frontier(side[partition.topic], partition, lookup, lookup.last_stable_offset, now_us),
                    hidden_start=False,
                )
                for partition, lookup in lookups.items()
            },
        )
        self._judging = self._nothing_judged()
        self._writer.planted()
        self._recall.forget()

    def _nothing_judged(self) -> Judging:
        return Judging(KnownFacts(None, first_batch=0), self._rules, evict_at=None)

    def _on_record(self) -> dict[int, dict[str, dict[str, int]]]:
        """Number of a waiting round -> cell -> class -> contributions on record."""
        cells, waiting = self._judging.cells, self._recall.waiting
        if self._judging.judged is None or not waiting:
            return {}
        judged = self._judging.judged_of(np.arange(len(cells)))
        planted = [(round_, cell) for round_ in waiting for cell in CELLS]
        windows = np.array([round_.window_start_us for round_, _ in planted], dtype=np.int64)
        rows = cells.rows_of(windows, pa.array([round_.key(cell) for round_, cell in planted], pa.string())).tolist()
        found: dict[int, dict[str, dict[str, int]]] = {}
        for (round_, cell), row in zip(planted, rows, strict=True):
            if row >= 0:
                on_record = {name: int(judged.on_record[name][row]) for name in VIOLATIONS}
                found.setdefault(round_.number, {})[cell] = on_record
        return found

    def _forget_old(self, at_us: int) -> None:
        """Drop the cells of rounds that were due, and of foreign records on the topics."""
        cells = self._judging.cells
        old = cells["first_seen_us"] < at_us - self._due.due_after_us - self._canary.every_us
        if self._judging.judged is None or not old.any():
            return
        self._judging.retire(old, -1, CellTotals.empty())
        firsts = self._judging.cells["first_batch"]
        assert self._progress is not None, "a cell is judged only after a batch was read"
        self._judging.known.forget(int(firsts.min(initial=self._progress.batch + 1)))

    def _say_once(self, sentence: str) -> None:
        """Report a sentence, unless it is the same as the last one."""
        if sentence and sentence != self._reported:
            self._say(sentence)
        self._reported = sentence


def _goes_on(progress: IngestProgress | None, lookups: Mapping[PartitionId, Lookup]) -> bool:
    """Whether the topics are still those of ``progress``, and their logs contain all unread offsets."""
    if progress is None:
        return False
    return all(
        partition in lookups
        and lookups[partition].topic_id == frontier.topic_id
        and lookups[partition].log_start_offset <= frontier.next_offset <= lookups[partition].high_watermark
        for partition, frontier in progress.frontiers.items()
    )


def _used(facts: pa.Table, batch: int) -> pa.Table:
    """The facts of the partition that the canary uses, with the canary's own batch number."""
    used = facts.filter(pc.equal(facts["partition"], PARTITION))
    at = used.schema.get_field_index("batch")
    return used.set_column(at, used.schema.field(at), pa.array([batch] * used.num_rows, pa.int64()))


def _sentence(outcome: Outcome) -> str:
    """The missed violations and false alarms of a round, in a sentence; empty if there are none."""
    parts = []
    if outcome.missed:
        parts.append(f"planted violations were not found in time: {', '.join(outcome.missed)}")
    if outcome.accused:
        parts.append("false alarms: " + ", ".join(sorted(f"{name} in {cell}" for cell, name in outcome.accused)))
    return f"the canary: {'; '.join(parts)}" if parts else ""
