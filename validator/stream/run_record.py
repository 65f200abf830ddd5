"""The measurements and totals of a run, which the published snapshot contains beside the cells.

All of them follow from committed state. A start restores totals from the derived tables and from the file of
`validator.stream.counters`, so that no counter falls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from validator.core.suspicion import Suspicion
from validator.core.unread import Unexamined
from validator.measure.expected import MINUTE_US, expected, expected_now, merged
from validator.measure.histogram import Tally
from validator.measure.latency import DEFINITIONS, EVERY_RESULT, outputs
from validator.measure.ledger import Ledger
from validator.measure.output import SECOND_US
from validator.measure.phases import injected, phase_at
from validator.measure.recent import DAY_MINUTES, RecentlyConfirmed, oldest_minute
from validator.measure.record_times import RecordTimes
from validator.model.coverage import ReadTwice
from validator.model.cut import shorten
from validator.model.frontier import PartitionId
from validator.model.snapshot import FaultWindow
from validator.model.violation import Violation
from validator.state.acknowledged import Acknowledged
from validator.stream.doubt_sentences import Example
from validator.stream.fault_records import FaultRecords

LATEST_KEPT: Final = 50
"""Number of largest violations per batch that are kept for publication. The table has all of them."""


@dataclass
class RunRecord:
    """The measurements and totals of a run. Updated with every commit.

    Rules: ``explained_by_one``, ``cells_each``, ``hidden_inputs_lose``, ``copies_explain``, ``shared_outputs``: as in
    `Suspicion`.
    ``expects_within_us``: time after a fault's healing in which the violations that its plan expects may be confirmed.

    Violations: ``recent``: those confirmed in the last day and not retracted. ``confirmed_total``: (class, phase) ->
    ever confirmed. ``by_fault``: (fault's name, class) -> confirmed less retracted. ``confirmed_by_fault``:
    (fault's name, class) -> minute -> confirmed. ``by_phase``: (phase, fault's name, class) -> confirmed less
    retracted. ``confirmed_now``: class -> confirmed less retracted. ``first_confirmed_us``: class -> instant since
    which ``confirmed_now`` is not 0. ``acknowledged``: the part of the violations that is acknowledged.

    Counters: ``reclassified_total``: (from, to) -> contributions whose class changed. ``results_most``,
    ``processed_most``: the highest numbers so far of results by class, and of processed contributions. Judging a cell
    again may lower the current numbers.

    Measures: ``latency_by_phase``: (definition, phase as known when the result was read) -> latencies.
    ``measured_batch``: the newest batch whose results are in the latencies. ``ledger``: output over time and the cost
    of faults; None if no faults topic is configured.

    ``read_twice``: how much was read a second time.

    ``examples``: topic in doubt -> a record that does not decode. ``is_once``: this is a `--once` run. ``has_ended``:
    it is at its end.
    ``not_at_rest_because``: why the pipeline was not at rest then. ``leaves_open``: the run has `--leave-open`.
    In that case ``left_open_because`` says why the pipeline was not at rest. This alone is no reason to doubt.
    """

    explained_by_one: int | None = 1
    cells_each: int = 1
    hidden_inputs_lose: bool = False
    missing_after_us: int = 0
    copies_explain: bool = True
    shared_outputs: frozenset[str] = frozenset()
    faults: tuple[FaultWindow, ...] = ()
    fault_records: FaultRecords = field(default_factory=FaultRecords)
    restarts: int = 0
    batches: int = 0
    record_times: RecordTimes = field(default_factory=RecordTimes)
    latency: dict[str, Tally] = field(default_factory=lambda: {name: Tally() for name in DEFINITIONS})
    latency_by_phase: dict[tuple[str, str], Tally] = field(default_factory=dict)
    measured_batch: int = -1
    ledger: Ledger | None = None
    detection: Tally = field(default_factory=Tally)
    durations: Tally = field(default_factory=Tally)
    confirmed_total: dict[tuple[str, str], int] = field(default_factory=dict)
    retracted_total: dict[str, int] = field(default_factory=dict)
    recent: RecentlyConfirmed = field(default_factory=RecentlyConfirmed)
    by_fault: dict[tuple[str, str], int] = field(default_factory=dict)
    confirmed_by_fault: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)
    expects_within_us: int = 0
    by_phase: dict[tuple[str, str | None, str], int] = field(default_factory=dict)
    confirmed_now: dict[str, int] = field(default_factory=dict)
    first_confirmed_us: dict[str, int] = field(default_factory=dict)
    latest: dict[str, Violation] = field(default_factory=dict)
    classified_total: dict[str, int] = field(default_factory=dict)
    reclassified_total: dict[tuple[str, str], int] = field(default_factory=dict)
    last_counts: dict[str, int] = field(default_factory=dict)
    results_most: dict[str, int] = field(default_factory=dict)
    processed_most: int = 0
    acknowledged: Acknowledged = field(default_factory=Acknowledged)
    unexamined: Mapping[PartitionId, Unexamined] = field(default_factory=dict)
    read_twice: ReadTwice = field(default_factory=ReadTwice)
    waiting_for: tuple[str, ...] = ()
    waiting_sides: frozenset[str] = frozenset()
    examples: dict[str, Example] = field(default_factory=dict)
    is_once: bool = False
    has_ended: bool = False
    not_at_rest_because: str | None = None
    leaves_open: bool = False
    left_open_because: str | None = None
    batch_seconds: float = 0.0
    first_batch_us: int | None = None
    last_batch_us: int | None = None
    events_per_second: float | None = None

    @property
    def suspicion(self) -> Suspicion:
        """The rules by which violations stay suspected, with the currently absent topics."""
        return Suspicion(
            self.explained_by_one,
            self.hidden_inputs_lose,
            self.copies_explain,
            self.waiting_sides,
            self.shared_outputs,
            self.cells_each,
            self.missing_after_us,
        )

    def faults_read(self, rows: Iterable[Mapping[str, object]]) -> None:
        """Add rows of the faults table."""
        self.fault_records.add(rows)
        self.faults = self.fault_records.windows()

    def batch_done(self, seconds: float, input_events: int, now_us: int) -> None:
        """Note that a batch was committed, judged and recorded at ``now_us``. ``seconds``: its duration."""
        self.first_batch_us = self.first_batch_us or now_us - int(seconds * 1e6)
        self.last_batch_us = now_us
        self.batches += 1
        self.batch_seconds = seconds
        self.durations.add(seconds)
        if input_events:
            self.events_per_second = input_events / seconds

    def phases_at(self, instants_us: Iterable[int]) -> dict[int, str]:
        """Return the phase of each instant, as far as faults and recoveries are known now."""
        faults = injected(self.faults)
        recovered = {} if self.ledger is None else self.ledger.recovered_us
        return {instant_us: phase_at(instant_us, faults, recovered)[0] for instant_us in set(instants_us)}

    def latency_measured(self, rows: Iterable[Mapping[str, Any]], resolution_us: int | None = 0) -> None:
        """Add rows of `validator.measure.latency.latency_buckets`. A batch is counted once.

        ``resolution_us``: resolution of the instants of their results, in microseconds (None: not known).
        """
        found = list(rows)
        phases = self.phases_at(row["second"] * SECOND_US for row in found)
        for row in found:
            if row["definition"] == EVERY_RESULT or row["batch"] <= self.measured_batch:
                continue
            place = (row["definition"], phases[row["second"] * SECOND_US])
            of_phase = self.latency_by_phase.setdefault(place, Tally())
            for tally in (self.latency[row["definition"]], of_phase):
                tally.add_bucket(row["bucket"], row["results"], row["sum_us"] / 1e6, row["max_us"] / 1e6)
        if self.ledger is not None:
            ledger = self.ledger
            for output in outputs((row for row in found if row["batch"] > ledger.batch), resolution_us):
                ledger.series.add(output)
        self.measured_through(max((row["batch"] for row in found), default=-1))

    def measured_through(self, batch: int) -> None:
        """Note that the results of all batches up to ``batch`` are counted."""
        self.measured_batch = max(batch, self.measured_batch)
        if self.ledger is not None:
            self.ledger.batch = max(batch, self.ledger.batch)

    def violations_recorded(
        self, sums: Iterable[Mapping[str, Any]], violations: Sequence[Violation], now_us: int
    ) -> None:
        """Add an append to the violations table, committed at ``now_us``. ``sums``: its rows, summed by `summed`."""
        self.add_recorded(sums, committed_us=now_us)
        for one in violations:
            self.recent.apply_change(one.id, one.violation_class, one.changed_us, one.confirmed, one.confirmed_now)
        for one in sorted(violations, key=_by_size)[:LATEST_KEPT]:
            self.remember(one)
        self.acknowledged.apply_changes({one.id: one.count for one in violations})
        self._forget_old(now_us)

    def add_recorded(self, sums: Iterable[Mapping[str, Any]], *, committed_us: int | None = None) -> None:
        """Add rows of the violations table, summed by `SUMMED_BY`, to the totals. One call adds a whole batch.

        ``committed_us``: instant of their commit; None if unknown: the lookup instant of their batch is used instead.
        """
        by_batch: dict[int, dict[str, int]] = {}
        for row in sums:
            if not row["confirmed"] and not row["retracted"]:
                # The violation is suspected, or was explained before it was confirmed.
                continue
            lookup_us, name = row["lookup_us"], row["class"]
            moved = by_batch.setdefault(lookup_us, {})
            moved[name] = moved.get(name, 0) + row["confirmed"] - row["retracted"]
            self.add_confirmed(name, row["phase"], row["confirmed"], row["retracted"], lookup_us, fault=row["fault"])
            if row["confirmed"] and row["provable_us"] is not None:
                done_us = lookup_us if committed_us is None else committed_us
                self.detection.add((done_us - row["provable_us"]) / 1e6, row["rows"])
        for lookup_us, moved in sorted(by_batch.items()):
            self._add_moved(moved, lookup_us)

    def add_confirmed(
        self, name: str, phase: str, confirmed: int, retracted: int, at_us: int, *, fault: str | None = None
    ) -> None:
        """Add confirmed and retracted contributions of a violation class to the totals."""
        place = (name, phase)
        self.confirmed_total[place] = self.confirmed_total.get(place, 0) + confirmed
        if retracted:
            self.retracted_total[name] = self.retracted_total.get(name, 0) + retracted
        stretch = (phase, fault, name)
        self.by_phase[stretch] = self.by_phase.get(stretch, 0) + confirmed - retracted
        if fault is not None:
            place = (fault, name)
            self.by_fault[place] = self.by_fault.get(place, 0) + confirmed - retracted
            minutes = self.confirmed_by_fault.setdefault(place, {})
            minutes[at_us // MINUTE_US] = minutes.get(at_us // MINUTE_US, 0) + confirmed

    def _add_moved(self, moved: Mapping[str, int], lookup_us: int) -> None:
        """Add the growth of confirmed less retracted contributions, by class, in the batch with this lookup instant."""
        for name, change in moved.items():
            now = self.confirmed_now[name] = max(0, self.confirmed_now.get(name, 0) + change)
            if now:
                self.first_confirmed_us.setdefault(name, lookup_us)
            else:
                self.first_confirmed_us.pop(name, None)

    def fault_violations(self) -> dict[str, dict[str, int]]:
        """Fault id -> class -> confirmed less retracted, for faults with a unique name."""
        names = [window.name for window in self.faults]
        found: dict[str, dict[str, int]] = {w.id: {} for w in self.faults if names.count(w.name) == 1}
        ids = {window.name: window.id for window in self.faults if window.id in found}
        for (fault, name), count in self.by_fault.items():
            if fault in ids and count > 0:
                found[ids[fault]][name] = count
        return found

    def expected(self) -> dict[tuple[str, str], int]:
        """(fault's name, class) -> confirmed less retracted, for the classes that the fault's plan expects."""
        return expected(self.faults, self.by_fault, self.confirmed_by_fault, self.expects_within_us)

    def expected_now(self, now_us: int) -> frozenset[str]:
        """The classes that the plan of any fault expects at ``now_us``."""
        return expected_now(self.faults, now_us, self.expects_within_us)

    def remember(self, violation: Violation) -> None:
        """Keep a violation for the status page, with short texts. The newest hundred are kept."""
        self.latest.pop(violation.id, None)
        ids = tuple(map(shorten, violation.ids))
        self.latest[violation.id] = replace(violation, key=shorten(violation.key), ids=ids)
        while len(self.latest) > 100:
            self.latest.pop(next(iter(self.latest)))

    def classified(self, now: Mapping[str, int]) -> None:
        """Count classifications. Gains of a class are first matched with losses of others (moves); the rest is new."""
        before, self.last_counts = self.last_counts, dict(now)
        gains = {name: now[name] - before.get(name, 0) for name in now if name != "expected"}
        losses = {name: -gain for name, gain in gains.items() if gain < 0}
        for name, gain in gains.items():
            if gain <= 0:
                continue
            left = gain
            for loser in list(losses):
                taken = min(left, losses[loser])
                if taken:
                    move = (loser, name)
                    self.reclassified_total[move] = self.reclassified_total.get(move, 0) + taken
                    losses[loser] -= taken
                    left -= taken
            self.classified_total[name] = self.classified_total.get(name, 0) + left
        # `expected` counts all contributions, so none moves into or out of it. The error budget is a share of it.
        grown = max(0, now.get("expected", 0) - before.get("expected", 0))
        self.classified_total["expected"] = self.classified_total.get("expected", 0) + grown

    def raise_totals(self, results: Mapping[str, int], processed: int) -> None:
        """Raise ``results_most`` and ``processed_most`` to the current values."""
        self.results_most = {name: max(count, self.results_most.get(name, 0)) for name, count in results.items()}
        self.processed_most = max(processed, self.processed_most)

    def _forget_old(self, now_us: int) -> None:
        oldest = oldest_minute(now_us)
        self.recent.forget(now_us)
        for place, minutes in self.confirmed_by_fault.items():
            if len(minutes) > 2 * DAY_MINUTES:
                # To bound the memory, minutes older than a day are merged.
                merging = merged(self.faults, place[0], minutes, oldest, self.expects_within_us)
                self.confirmed_by_fault[place] = merging


def _by_size(one: Violation) -> tuple[int, str, int, str]:
    return -one.count, one.violation_class, one.window_start_us or 0, one.key
