"""Positions of undecodable records: settled exactly if a dead letter or an operator names them, and the same after
restarts.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from tests.unit.fed_run import Fed, FedRun
from tests.unit.memory_tables import MemoryTables
from tests.unit.reconcile_rows import bad, fact, facts
from validator.codecs.columns import UNDECODABLE
from validator.model.classes import Verdict
from validator.model.frontier import PartitionId
from validator.model.progress import IngestProgress, TimeRules
from validator.state import positions
from validator.state.positions import (
    EARLIER,
    Cause,
    Positions,
    Settlement,
    Stretch,
    Stretches,
    joined,
    log_reset_mark,
    positions_of,
    reread_mark,
    split,
)
from validator.state.tables import Table
from validator.stream.commit_rows import mark_row
from validator.stream.retention import Retired
from validator.stream.settling import NothingToSettle, SettlementJournal, settle

PLACE, DEAD = PartitionId("orders", 3), PartitionId("dead", 3)
BY_OPERATOR: Final = "an operator"


def asked(first: int, last: int, reason: str = "said") -> Settlement:
    return Settlement(PLACE, (Stretch(first, last, last - first + 1),), reason)


def offsets_of(stretches: Stretches) -> set[int]:
    assert all(one.is_full for one in stretches)
    return {at for one in stretches for at in range(one.first, one.last + 1)}


def cause_of(cause: Cause | None) -> str | None:
    return cause and (cause.topic or BY_OPERATOR)


class Pipeline:
    """Two topics without decodable records, the second one a rejected topic, and a sidecar that reads them.

    ``causes`` is the expected state, by sets: topic -> offset -> the cause of its settlement, None while it is hidden.
    ``named``: offset of a dead letter -> the position that it names, until it is settled by that. ``counts``: topic ->
    number of settled records. ``lines``: topic, offsets and batch of each `ack`.
    """

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self.rng, self.tables, self.journal = folder, rng, MemoryTables(), SettlementJournal(folder)
        self.batch = -1
        self.causes: dict[str, dict[int, str | None]] = {"orders": {}, "dead": {}}
        self.named: dict[int, tuple[str, int]] = {}
        self.counts = {"orders": 0, "dead": 0}
        self.lines: list[tuple[str, set[int], int]] = []
        self.resets: list[tuple[str, int, int]] = []
        self.retired, self.live = Retired(), Positions()

    def read(self) -> None:
        """A batch with new records at random offsets, and the settlements."""
        rows = []
        for topic, side in (("orders", "input"), ("dead", "rejected")):
            # Sometimes between known records: offsets in between decoded, or belong to a later batch of another task.
            new = {self.rng.randrange(60) for _ in range(self.rng.choice((0, 1, 5)))} - self.causes[topic].keys()
            for part in filter(None, (sorted(new)[:2], sorted(new)[2:])):
                chosen = [(self.rng.choice(("orders", "orders", "dead")), self.rng.randrange(60)) for _ in part]
                rows.append(bad(self.batch + 1, part, side=side, names=tuple(f"{t}/3/{at}" for t, at in chosen)))
                if side == "rejected":
                    self.named |= dict(zip(part, chosen, strict=True))
            self.causes[topic] |= dict.fromkeys(new)
        if rows:
            self.live.absorb(facts(*rows))
        done = self.live.settle(self.journal.read())
        self._settled_as_expected()
        self._commit([facts(*rows)] if rows else [], [one.to_mark() for one in done])

    def _settled_as_expected(self) -> None:
        for topic, offsets, batch in self.lines:
            void = [at for where, at, since in self.resets if where == topic and since > batch]
            for at in offsets & {at for at, cause in self.causes[topic].items() if cause is None}:
                if at < min(void, default=1000):
                    self._settle(topic, at, BY_OPERATOR)
        found = True
        while found:
            found = False
            for letter, (topic, at) in list(self.named.items()):
                if at in self.causes[topic] and (topic == "orders" or self.causes[topic][at] is not None):
                    found = True
                    del self.named[letter]
                    self._settle(topic, at, "dead")
                    self._settle("dead", letter, topic)

    def _settle(self, topic: str, at: int, cause: str) -> None:
        if self.causes[topic].get(at, "") is None:
            self.causes[topic][at] = cause
            self.counts[topic] += 1

    def ack(self) -> None:
        topic, first = self.rng.choice(("orders", "dead")), self.rng.randrange(60)
        last = first + self.rng.randrange(15)
        waiting = {at for where, offsets, _ in self.lines if where == topic for at in offsets}
        meant = {at for at, cause in self.causes[topic].items() if first <= at <= last and cause is None}
        if meant - waiting:
            settle(self.folder, self.restarted(), f"{topic}/3/{first}-{last}", f"reason {len(self.lines)}")
            self.lines.append((topic, meant - waiting, self.batch))
        elif not meant:
            with pytest.raises(NothingToSettle):
                settle(self.folder, self.restarted(), f"{topic}/3/{first}-{last}", "a probe")

    def reset(self) -> None:
        """A log is recreated or cut back."""
        place, offset = self.rng.choice((PLACE, DEAD)), self.rng.choice((0, 20, 40))
        self._commit([], [log_reset_mark(place, offset)])
        self.live.reset_log(place, offset, self.batch)
        self.resets.append((place.topic, offset, self.batch))
        self.causes[place.topic] = {at: one for at, one in self.causes[place.topic].items() if at < offset}
        self.named = {
            letter: position
            for letter, position in self.named.items()
            if all(where != place.topic or at < offset for where, at in (("dead", letter), position))
        }

    def reread(self) -> None:
        """A topic is read again from its start with other fields, by another process."""
        again = self.rng.choice(("orders", "dead"))
        self._commit([], [reread_mark([again])])
        self.causes[again], self.counts[again] = {}, 0
        for topic, causes in self.causes.items():
            for at in [at for at, cause in causes.items() if cause == again]:
                causes[at] = None
                self.counts[topic] -= 1
        if again == "dead":
            self.named = {}
        self.restart()

    def retire(self) -> None:
        """Retention folds the known positions into its mark."""
        self.batch += 1
        self.retired = Retired.from_mark(Retired(positions=self.live.to_json(self.batch)).to_mark())

    def restart(self) -> None:
        self.live, self.journal = self.restarted(), SettlementJournal(self.folder)

    def restarted(self) -> Positions:
        return positions_of(self.tables, self.retired.known_positions())

    def _commit(self, parts: list[pa.Table], marks: list[str]) -> None:
        self.batch += 1
        progress = IngestProgress(TimeRules(0, 0), batch=self.batch, lookup_us=self.batch + 1)
        rows = [*parts, *(mark_row(progress, mark, 10**15) for mark in marks)]
        if rows:
            self.tables.append(pa.concat_tables(rows), Table.FACTS, writer="w", version=self.batch)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("bound", [10_000, 3])
def test_positions_agree_with_sets_of_offsets_and_are_the_same_after_a_restart(
    bound: int, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the bound only the restart is compared: neighbours are settled together."""
    monkeypatch.setattr(positions, "STRETCHES_MAX", bound)
    rng = random.Random(seed)
    pipeline = Pipeline(tmp_path, rng)
    steps = [pipeline.read, pipeline.ack, pipeline.reset, pipeline.reread, pipeline.retire, pipeline.restart]
    for step in [pipeline.read, *rng.choices(steps, [12, 8 if bound > 3 else 0, 1, 1, 1, 1], k=24), pipeline.read]:
        step()
        for known in (pipeline.live, pipeline.restarted()):
            for place in (PLACE, DEAD) if bound > 3 else ():
                found = {
                    at: cause_of(cause)
                    for cause, stretches in known.by_cause.get(place, {}).items()
                    for at in offsets_of(stretches)
                }
                assert found == pipeline.causes[place.topic]
                assert known.accepted_records.get(place, 0) == pipeline.counts[place.topic]
            assert known == pipeline.live
    assert max(len(it) for causes in pipeline.live.by_cause.values() for it in causes.values()) <= bound
    assert len(pipeline.live.waiting) <= bound


def test_the_example_is_the_first_record_of_the_newest_batch_whichever_task_read_it() -> None:
    rows = [bad(2, [7]), bad(2, [5, 6]), bad(2, [9])]
    for order in (rows, rows[::-1]):
        found = Positions()
        found.absorb(facts(bad(1, [3])))
        found.absorb(facts(*order))
        assert found.examples == {PLACE: 5}


def test_beyond_a_bound_neighbours_are_settled_only_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "STRETCHES_MAX", 2)
    known = Positions()
    known.absorb(facts(bad(0, (1, 3, 5, 7))))
    assert known.hidden(PLACE) == (Stretch(1, 3, 2), Stretch(5, 7, 2))
    assert known.settle([asked(3, 7)]) == [Settlement(PLACE, (Stretch(5, 7, 2),), "said")]
    assert known.hidden(PLACE) == (Stretch(1, 3, 2),)
    assert known.accepted_records == {PLACE: 2}


def test_beyond_a_bound_the_oldest_reasons_are_kept_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "REASONS_MAX", 2)
    known = Positions()
    known.absorb(facts(bad(0, range(9))))
    known.settle([asked(at, at, f"reason {at}") for at in range(5)])
    assert {cause.reason: it for cause, it in known.by_cause[PLACE].items() if cause} == {
        EARLIER: (Stretch(0, 2, 3),), "reason 3": (Stretch(3, 3, 1),), "reason 4": (Stretch(4, 4, 1),),
    }  # fmt: skip
    assert known.accepted_records == {PLACE: 5}


def test_a_row_begins_with_its_first_record_that_no_operator_settled() -> None:
    """A dead letter does not prove that the event left the engine's time unchanged."""
    rows = facts(bad(0, [1, 2, 5]), bad(1, [9]), bad(2, [11]), fact("input", [1], batch=0, lookup_us=1))
    known = Positions()
    known.absorb(rows)
    known.absorb(facts(bad(3, [7], side="rejected", names=("orders/3/11",))))
    known.settle([asked(1, 3), asked(9, 9)])
    assert offsets_of(known.hidden(PLACE)) == {5}
    left = known.unsettled(rows).to_pylist()
    assert [row["first_offset"] for row in left if row["status"] == UNDECODABLE] == [5, 11]
    assert len(left) == 3


def test_many_stretches_are_split_as_sets_are() -> None:
    rng = random.Random(7)
    for _ in range(300):
        one, other = ({at for at in range(12) if rng.random() < 0.5} for _ in range(2))
        left, right = (joined(Stretch(at, at, 1) for at in some) for some in (one, other))
        assert [joined(part) for part in split(left, right)] == [*map(joined, split(left, right))]
        assert tuple(map(offsets_of, split(left, right))) == (one & other, one - other)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_rejected_record_that_another_one_names_still_hides_an_answer(restarts: bool, tmp_path: Path) -> None:
    """Event 1 was rejected, and the rejected record does not decode. The engine rejected that record, too."""
    rejected = "rejected.0={topic: dead, fields: {id: id, key: page, event_time: timestamp}}"
    run = FedRun(tmp_path, (rejected,))
    run.feed([Fed("click", (1,)), Fed("click", (2,)), Fed("output", (2,)), Fed("dead", None, names="click/0/0")])
    if restarts:
        run.restart()
    run.feed([Fed("dead", None, names="dead/0/0")])
    found = run.end()
    assert (found.contributions["missing"], found.verdicts[found.guarantee]) == (1, Verdict.UNKNOWN)
    assert run.runner.positions.hidden(PartitionId("dead", 0)) == (Stretch(0, 1, 2),)
