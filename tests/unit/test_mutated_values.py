"""The mutations of tests/e2e/test_mutations.py that concern values, played in memory: without Kafka and engine process.

The mutant's core and the sidecar's stage and core run; the events, and the order in which they are read, are the
test's. The counts of the page are those of the other test.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, cast

import pytest

from generator.wire import timestamp_text
from testbed.engines.core import BEGINNING_MS, Core, LateEvent, PartitionProgress, Result, WindowCore
from testbed.engines.mutations import AppliedMutation, EmittedResult, Rates, mutate
from testbed.engines.running import CumulativeCore
from testbed.engines.wire import result_bytes, running_bytes
from tests.e2e.test_mutations import CASES, TRIALS, WINDOW_MS, Cell, Judged, Load, Row, found_in, output_of, with_values
from tests.unit.local_run import LATER_US, LocalRun, _LocalRunner
from tests.unit.memory_tables import MemoryTables
from tests.unit.pipeline_shapes import START_MS, log, one
from tests.worlds import some
from validator.codecs.one_record import Record
from validator.model.snapshot import Snapshot

EVENTS: Final = 600
TAKEN: Final = 150
"""Events after which the engine writes results, with operator `running_aggregate`."""
PLACE: Final = ("in", 0)
NAMES: Final = ("values", "values-beside-ids", "running-values")
PIPELINE: Final = """
pipeline: mutations
guarantee: exactly_once
kafka: {bootstrap_servers: localhost:1}
inputs: [{topic: in, fields: {id: id, key: page, event_time: timestamp}}]
outputs: [{topic: out, evidence: ids, fields: {key: page, window_start: windowStart, ids: ids}}]
oracle: {kind: tumbling_window, size: 10s}
"""


def load_of(name: str) -> tuple[Load, list[tuple[int, str, int]]]:
    """The events of a trial, some of them sent twice: id, page and time."""
    rng, events = Random(name), list[tuple[int, str, int]]()
    pages = 100 if TRIALS[name].of_keys else 5
    for number in range(EVENTS):
        event = (number, f"/page-{rng.randrange(pages)}", START_MS + number * 700)
        events += [event] * (1 + (rng.random() < 0.02))
    times_ms, ids = defaultdict[str, list[int]](list), defaultdict[Cell, list[int]](list)
    for id_, page, at in events:
        times_ms[page].append(at)
        ids[at // WINDOW_MS * WINDOW_MS, page].append(id_)
    return Load("in", len(events), times_ms, EVENTS, ids), events


def emitted(name: str, row: Row, events: Sequence[tuple[int, str, int]]) -> tuple[list[Result], list[AppliedMutation]]:
    """The results of the mutant, and its record."""
    trial, (deeds, _) = TRIALS[name], row
    core: Core = CumulativeCore() if trial.of_keys else WindowCore(WINDOW_MS)
    core.assign(PLACE, PartitionProgress(0, 0, BEGINNING_MS))
    rates = Rates(dict.fromkeys(deeds, 0.02))
    operator = "running_aggregate" if trial.of_keys else "tumbling"
    results, applied = list[Result](), list[AppliedMutation]()

    def take(answers: Iterable[Result | LateEvent]) -> None:
        found = mutate(list(answers), rates, 11, operator=operator)  # type: ignore[arg-type]
        results.extend(it.result for it in found.emissions if isinstance(it, EmittedResult))
        applied[:] = found.applied if trial.of_keys else [*applied, *found.applied]

    for start in range(0, len(events), TAKEN):
        some = events[start : start + TAKEN]
        core.process(PLACE, [(start + i, (page,), at, id_) for i, (id_, page, at) in enumerate(some)])
        if trial.of_keys:
            take(core.take())
    core.close_all()
    if not trial.of_keys:
        take(core.take())
    return results, applied


def records_of(name: str, results: Iterable[Result], load: Load) -> list[Record]:
    """The records of the results, with values."""
    trial, found = TRIALS[name], list[Record]()
    right = load.ids_by_text if trial.beside_ids else None
    for result in results:
        value = json.loads((running_bytes if trial.of_keys else result_bytes)(result))
        found.append(one(json.dumps(with_values(value, right), default=float)))
    return found


def judged(name: str, row: Row, folder: Path) -> tuple[Judged, Snapshot]:
    """A row of a trial."""
    trial, (load, events) = TRIALS[name], load_of(name)
    results, applied = emitted(name, row, events)
    sent = [{"id": id_, "page": page, "timestamp": timestamp_text(at).decode()} for id_, page, at in events]
    logs = {"in": log(map(one, sent)), "out": log(records_of(name, results, load))}
    stated = ", ".join(f"{value}: {value}" for value in row[1])
    settings = (*trial.sidecar, f"oracle={trial.oracle_with(row[1])}", output_of(trial, "out", stated))
    tables = MemoryTables()
    run = LocalRun(folder, settings=settings, text=PIPELINE, now_us=LATER_US, tables=tables)
    cast("_LocalRunner", run.runner).logs = logs
    run.logs.ends.update({topic: len(records) for topic, records in logs.items()})
    run.feed(())
    snapshot = run.end()
    nothing: Any = None
    return Judged(trial, *row, load, tuple(applied), 0, nothing, found_in(tables)), snapshot


@pytest.mark.parametrize(
    ("name", "row"),
    some(case for case in CASES if case[0] in NAMES),
    ids=lambda it: it if isinstance(it, str) else "-".join((*(it[0] or ("honest",)), *it[1])),
)
def test_each_error_of_an_engine_is_found_in_its_cell(name: str, row: Row, tmp_path: Path) -> None:
    case, snapshot = judged(name, row, tmp_path)
    due = {place: ids.total() for place, ids in case.due.items()}
    assert {place: count for place, (count, _) in case.found.items()} == due
    confirmed = snapshot.violations["confirmed"]
    assert {name: confirmed.get(name, 0) for name in case.trial.classes} == case.due_by_class()
    assert {deed.mutation for deed in case.deeds} == set(row[0]), "the mutant did something else"
