"""Positions of undecodable records: settled exactly if a rejected record or an operator names them, and the same after
restarts.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.fed_run import Fed, FedRun
from tests.unit.reconcile_rows import fact, facts
from validator.codecs.columns import UNDECODABLE
from validator.model.classes import Verdict
from validator.model.frontier import Frontier, PartitionId
from validator.model.progress import IngestProgress, TimeRules
from validator.state import positions
from validator.state.positions import Positions, Settlement, Stretch, joined, positions_of, reread_mark
from validator.state.tables import StateTables, Table
from validator.stream.commit_rows import log_resets, mark_row, topic_marks
from validator.stream.retention import Retired
from validator.stream.settling import FILE, NothingToSettle, SettlementJournal, settle

PLACE = PartitionId("orders", 3)


def bad(batch: int, offsets: list[int], *, side: str = "input", names: tuple[str, ...] = ()) -> dict[str, Any]:
    """The row of undecodable records. ``names``: the positions that they name, in order."""
    stretches = [{"first": at, "last": at, "records": 1} for at in offsets]
    return {
        **fact("output", [], batch=batch, lookup_us=batch),
        "side": side,
        "topic": PLACE.topic if side == "input" else side,
        "partition": PLACE.partition,
        "status": UNDECODABLE,
        "window_start_us": None,
        "key": None,
        "records": len(offsets),
        "first_offset": min(offsets),
        "last_offset": max(offsets),
        "stretches": stretches,
        "results": [],
        "text_ids": [{"id": name, "offset": at} for name, at in zip(names, offsets, strict=False)],
    }


def test_the_example_is_the_first_record_of_the_newest_batch_whichever_task_read_it() -> None:
    rows = [bad(2, [7]), bad(2, [5, 6]), bad(2, [9]), bad(1, [3])]
    for order in (rows, rows[::-1]):
        found = Positions()
        found.absorb(facts(*order))
        assert found.examples == {PLACE: 5}


def asked(first: int, last: int) -> Settlement:
    return Settlement(PLACE, (Stretch(first, last, 0),), "said")


@pytest.mark.parametrize("seed", range(4))
def test_hidden_and_settled_offsets_agree_with_a_set_also_after_a_restart(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    tables, live, hidden, gone = StateTables(tmp_path), Positions(), set[int](), set[int]()
    retired = Retired()
    for batch in range(12):
        offsets = sorted(rng.sample(range(batch * 50, batch * 50 + 50), rng.randint(1, 50)))
        rows = facts(bad(batch, offsets))
        live.absorb(rows)
        hidden |= set(offsets)
        first = rng.randrange(batch * 50 + 50)
        last = first + rng.randrange(60)
        done = live.settle([asked(first, last)])
        taken = {at for at in hidden if first <= at <= last}
        assert sum(one.records for one in done) == len(taken)
        hidden, gone = hidden - taken, gone | taken
        tables.append(rows, Table.FACTS, writer="facts", version=batch)
        progress = IngestProgress(TimeRules(0, 0), batch=batch, lookup_us=batch + 1)
        for number, one in enumerate(done):
            row = mark_row(progress, one.to_mark(), 10**15)
            tables.append(row, Table.FACTS, writer=f"marks-{number}", version=batch)
        if batch == 6:
            retired = Retired.from_mark(Retired(positions=live.to_json(batch)).to_mark())
    for known in (live, positions_of(tables, Positions()), positions_of(tables, retired.known_positions())):
        assert offsets_of(known.hidden[PLACE]) == hidden
        assert offsets_of(known.settled_stretches.get(PLACE, ())) == gone
        assert known.settled.get(PLACE, 0) == len(gone)
    again = positions_of(tables, Positions())
    assert again.settle([asked(0, 10_000)])[0].records == len(hidden) or not hidden
    row = mark_row(IngestProgress(TimeRules(0, 0), batch=12, lookup_us=13), reread_mark(["orders"]), 10**15)
    tables.append(row, Table.FACTS, writer="reread", version=12)
    assert positions_of(tables, Positions()) == Positions(), "what was said of a topic that is read again is void"


def offsets_of(stretches: tuple[Stretch, ...]) -> set[int]:
    assert all(one.records == one.last - one.first + 1 for one in stretches)
    return {at for one in stretches for at in range(one.first, one.last + 1)}


def test_beyond_a_bound_neighbours_are_settled_only_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "STRETCHES_MAX", 2)
    found = joined(Stretch(at, at, 1) for at in (1, 3, 5, 7))
    assert found == (Stretch(1, 3, 2), Stretch(5, 7, 2))
    known = Positions(hidden={PLACE: found})
    assert known.settle([asked(3, 7)]) == [Settlement(PLACE, (Stretch(5, 7, 2),), "said")]
    assert known.hidden[PLACE] == (Stretch(1, 3, 2),)


def test_a_rejected_record_settles_the_position_that_it_names_in_either_order() -> None:
    named = bad(0, [7, 8], side="rejected", names=("orders/3/17", "orders/3/99"))
    known = Positions()
    known.absorb(facts(named))
    assert known.settle([]) == []
    known.absorb(facts(bad(1, [16, 17])))
    done = known.settle([])
    assert {(one.place.topic, one.stretches, one.by) for one in done} == {
        ("orders", (Stretch(17, 17, 1),), "rejected"),
        ("rejected", (Stretch(7, 7, 1),), "rejected"),
    }
    assert known.hidden == {PLACE: (Stretch(16, 16, 1),), PartitionId("rejected", 3): (Stretch(8, 8, 1),)}
    assert known.settle([]) == []


@pytest.mark.parametrize("restarts", [False, True])
def test_a_rejected_record_that_another_one_names_still_hides_an_answer(restarts: bool, tmp_path: Path) -> None:
    """Event 1 was rejected, and the rejected record does not decode. The engine rejected that record, too."""
    rejected = "rejected.0={topic: dead, fields: {id: id, key: page, event_time: timestamp}}"
    run = FedRun(tmp_path, (rejected,))
    run.feed([Fed("click", (1,)), Fed("click", (2,)), Fed("output", (2,)), Fed("dead", None, names="click/0/0")])
    if restarts:
        known = run.runner.positions
        run.restart()
        run.runner.positions = Positions.from_json(known.to_json(known.batch))
    run.feed([Fed("dead", None, names="dead/0/0")])
    found = run.end()
    assert (found.contributions["missing"], found.verdicts[found.guarantee]) == (1, Verdict.UNKNOWN)
    assert run.runner.positions.hidden[PartitionId("dead", 0)] == (Stretch(0, 1, 2),)


@pytest.mark.parametrize("saves", [False, True])
def test_the_state_of_an_earlier_version_does_not_settle_a_late_record(
    saves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier version did not record which partitions have answers, in saved cells or the mark of a retirement."""
    to_json = Positions.to_json
    monkeypatch.setattr(FedRun, "saves", saves)
    rejected = "rejected.0={topic: dead, fields: {id: id, key: page, event_time: timestamp}}"
    run = FedRun(tmp_path, (rejected,))
    monkeypatch.setattr(
        Positions, "to_json", lambda *given: {k: v for k, v in to_json(*given).items() if k != "answers"}
    )
    run.feed([Fed("click", (1,)), Fed("click", (2,)), Fed("output", (2,)), Fed("lateOutput", None)])
    if not saves:
        row = mark_row(run.runner.progress, Retired(positions=run.runner.positions.to_json(0)).to_mark(), 1)
        run.runner.tables.append(row, Table.FACTS, writer="earlier", version=99)
    run.restart()
    run.feed([Fed("dead", None, names="lateOutput/0/0")])
    found = run.end()
    assert (found.contributions["missing"], found.verdicts[found.guarantee]) == (1, Verdict.UNKNOWN)
    assert run.runner.positions.hidden[PartitionId("lateOutput", 0)] == (Stretch(0, 0, 1),)


def test_a_row_begins_with_its_first_record_that_is_not_settled() -> None:
    rows = facts(bad(0, [1, 2, 5]), bad(1, [9]), fact("input", [1], batch=0, lookup_us=1))
    known = Positions()
    known.absorb(rows)
    known.settle([asked(1, 3), asked(9, 9)])
    left = known.unsettled(rows).to_pylist()
    assert [row["first_offset"] for row in left if row["status"] == UNDECODABLE] == [5]
    assert len(left) == 2


class Log:
    """A topic without decodable records that is sometimes recreated, and the sidecar that reads it.

    Every record has a unique number. ``log`` maps offsets to the records in the broker, ``known`` to those that were
    read. ``asked`` holds the records that an operator settled, ``settled`` those that the sidecar should have settled.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.tables = folder, StateTables(folder)
        self.records, self.topic_id, self.end = 0, 0, 0
        self.log: dict[int, int] = {}
        self.known: dict[int, int] = {}
        self.asked: set[int] = set()
        self.settled: set[int] = set()
        self.retired = Retired()
        self.progress = IngestProgress(TimeRules(0, 0), lookup_us=1, frontiers={PLACE: self._frontier})
        self.restart()

    @property
    def _frontier(self) -> Frontier:
        return Frontier("input", *("orders", 3, str(self.topic_id)), 0, self.end, 0, self.end, self.end, 1)

    def write(self, count: int) -> None:
        """Append ``count`` undecodable records, each after an offset without a record."""
        for _ in range(count):
            self.records += 1
            self.log[self.end + 1] = self.records
            self.end += 2

    def recreate(self) -> None:
        """Delete and recreate the topic."""
        self.topic_id, self.end, self.log = self.topic_id + 1, 0, {}

    def cut(self, end: int) -> None:
        """Truncate the log, and read."""
        self.end = min(self.end, end)
        self.log = {at: number for at, number in self.log.items() if at < self.end}
        self.read()

    def read(self) -> None:
        """Two batches: one that opens a generation, and one that reads all records."""
        before = self.progress
        self.progress = replace(before, batch=before.batch + 1, frontiers={PLACE: self._frontier})
        begun = [mark for mark in topic_marks(before, self.progress) if "anew" in mark]
        self._commit([mark_row(self.progress, mark, 10**15) for mark in begun])
        for place, offset in log_resets(before, self.progress):
            self.live.reset_log(place, offset, self.progress.batch)
            self.known = {at: number for at, number in self.known.items() if at < offset}
        self.progress = replace(self.progress, batch=self.progress.batch + 1)
        new = sorted(self.log.keys() - self.known.keys())
        rows = [facts(bad(self.progress.batch, new))] if new else []
        self.known |= self.log
        for part in rows:
            self.live.absorb(part)
        done = self.live.settle(self.journal.read())
        self._commit([*rows, *(mark_row(self.progress, one.to_mark(), 10**15) for one in done)])
        self.settled |= self.asked & set(self.known.values())

    def ack(self, first: int, last: int) -> None:
        """As an operator, settle the records that the sidecar has read in this range."""
        meant = {number for at, number in self.known.items() if first <= at <= last} - self.settled - self.asked
        if meant:
            settle(self.folder, f"orders/3/{first}-{last}", "a probe")
            self.asked |= meant
        else:
            with pytest.raises(NothingToSettle):
                settle(self.folder, f"orders/3/{first}-{last}", "a probe")

    def retire(self) -> None:
        """Retention folds the known positions into its mark."""
        self.progress = replace(self.progress, batch=self.progress.batch + 1)
        self.retired = Retired.from_mark(Retired(positions=self.live.to_json(self.progress.batch)).to_mark())

    def restart(self) -> None:
        """Continue in another process."""
        self.live, self.journal = (
            positions_of(self.tables, self.retired.known_positions()),
            SettlementJournal(self.folder),
        )

    def is_as_expected(self) -> bool:
        """Whether the expected positions are hidden and settled, in this process and after a restart."""
        hidden = {at for at, number in self.known.items() if number not in self.settled}
        starts = [self.retired.known_positions()] if self.retired.positions else [Positions()]
        again = [positions_of(self.tables, known) for known in starts]
        return all(
            (offsets_of(known.hidden.get(PLACE, ())), known.settled.get(PLACE, 0)) == (hidden, len(self.settled))
            for known in (self.live, *again)
        )

    def _commit(self, parts: list[pa.Table]) -> None:
        if parts:
            self.tables.append(pa.concat_tables(parts), Table.FACTS, writer="w", version=self.progress.batch)


@pytest.mark.parametrize("seed", range(4))
def test_settled_positions_do_not_apply_to_a_recreated_log(seed: int, tmp_path: Path) -> None:
    rng, log = random.Random(seed), Log(tmp_path)
    log.write(3)
    log.read()
    for _ in range(9):
        for step in rng.choices(["write", "recreate", "cut", "ack", "retire", "restart"], [6, 2, 1, 6, 1, 1], k=3):
            if step == "write":
                log.write(rng.randint(1, 4))
            elif step == "cut":
                log.cut(rng.randint(0, 20))
            elif step == "ack":
                first = rng.randint(0, 20)
                log.ack(first, first + rng.randint(0, 9))
            else:
                {"recreate": log.recreate, "retire": log.retire, "restart": log.restart}[step]()
        log.read()
        assert log.is_as_expected()


def test_a_line_of_an_earlier_version_settles_nothing_of_a_recreated_log(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write(2)
    log.read()
    line = {"topic": "orders", "partition": 3, "stretches": [[1, 1, 1]], "by": "ack", "reason": "a probe", "time_us": 1}
    (tmp_path / FILE).write_text(json.dumps(line) + "\n")
    log.asked = {1}
    log.read()
    assert log.is_as_expected()
    assert log.settled == {1}
    log.recreate()
    log.write(2)
    log.restart()
    log.read()
    assert log.is_as_expected()
    assert log.settled == {1}


def settled_offsets(done: list[Settlement]) -> dict[str, set[int]]:
    """Topic -> offsets that were settled."""
    return {one.place.topic: offsets_of(one.stretches) for one in done}


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("by", ["the first record", "an operator"])
def test_every_record_that_names_a_settled_position_is_settled(tmp_path: Path, by: str, is_restarted: bool) -> None:
    """An engine that retries a dead letter names the position again, immediately or much later."""
    tables, known = StateTables(tmp_path), Positions()
    first = bad(0, [7, 8], side="rejected", names=("orders/3/17", "orders/3/17") if by == "the first record" else ())
    cases = [
        (first, {}),
        (bad(1, [17]), {"orders": {17}, "rejected": {7, 8}} if by == "the first record" else {"orders": {17}}),
        (bad(2, [9], side="rejected", names=("orders/3/17",)), {"rejected": {9}}),
        (bad(3, [10, 11], side="rejected", names=("orders/3/18", "orders/3/17")), {"rejected": {11}}),
        (bad(4, [18]), {"orders": {18}, "rejected": {10}}),
    ]
    for batch, (row, expected) in enumerate(cases):
        if is_restarted:
            known = positions_of(tables, Positions.from_json(known.to_json(batch - 1)) if batch == 3 else Positions())
        known.absorb(facts(row))
        done = known.settle([asked(17, 17)] if by == "an operator" else [])
        assert settled_offsets(done) == expected
        progress = IngestProgress(TimeRules(0, 0), batch=batch, lookup_us=batch + 1)
        rows = [facts(row), *(mark_row(progress, one.to_mark(), 10**15) for one in done)]
        tables.append(pa.concat_tables(rows), Table.FACTS, writer="w", version=batch)
    assert offsets_of(known.hidden[PLACE]) == set()
    assert known.named == {}


def test_a_rejected_topic_named_ack_settles_no_more_than_another() -> None:
    """A rejected record does not prove that the event left the engine's time unchanged."""
    rows = facts(bad(0, [17]))
    named = {**bad(0, [7], side="rejected", names=("orders/3/17",)), "topic": "ack"}
    known, marked = Positions(), Positions()
    known.absorb(rows)
    known.absorb(facts(named))
    for one in known.settle([]):
        marked.apply(Settlement.from_json(json.loads(one.to_mark().removeprefix(positions.MARK))))
    for each in (known, Positions.from_json(known.to_json(0)), marked):
        assert each.unsettled(rows).num_rows == 1
        assert {one.by for one in each.settlements} == {"ack"}
    by_operator = {"topic": "orders", "partition": 3, "stretches": [[17, 17, 1]], "by": "ack", "reason": "a probe"}
    known = Positions()
    known.absorb(rows)
    known.apply(Settlement.from_json(by_operator))
    assert known.unsettled(rows).num_rows == 0, "a mark of an earlier version"


@pytest.mark.parametrize("version", ["this one", "an earlier one"])
@pytest.mark.parametrize("again", ["orders", "rejected", "other"])
def test_positions_settled_by_records_that_are_read_again_are_hidden_again(again: str, version: str) -> None:
    """The records may decode now. A rejected record for a decodable event may be its answer, and a rejected record that
    decodes settles nothing."""
    known = Positions()
    known.absorb(facts(bad(0, [16, 17, 18])))
    known.absorb(facts(bad(1, [7], side="rejected", names=("orders/3/17",))))
    known.settle([asked(16, 16)])
    if version == "an earlier one":
        kept = {name: value for name, value in known.to_json(1).items() if name not in ("tied", "anew")}
        known = Positions.from_json(kept)
    known.forget([again])
    hidden = {place.topic: offsets_of(stretches) for place, stretches in known.hidden.items() if stretches}
    if version == "this one" and again == "other":
        assert hidden == {"orders": {18}}
        assert sum(known.settled.values()) == 3
        return
    assert hidden == {
        "orders": {"rejected": {7}}, "rejected": {"orders": {17, 18}},
        "other": {"rejected": {7}, "orders": {17, 18}},
    }[again]  # fmt: skip
    assert known.settled.get(PLACE, 0) == (0 if again == "orders" else 1)
    assert sum(known.settled.values()) == known.settled.get(PLACE, 0)
