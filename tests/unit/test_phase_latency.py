"""The latencies of each phase, from the files of a state: exact at the phase's edges at any age, and for every
definition.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.measure_series import fault, second, us
from tests.unit.publish_snapshots import clean, config
from validator.cli.main import main
from validator.measure.cost import CostRules
from validator.measure.ledger import Ledger
from validator.measure.output import Output, Spread
from validator.model.snapshot import Phase
from validator.publish.publisher import Publisher
from validator.publish.report import build
from validator.stream import counters
from validator.stream.measuring import LedgerWriter
from validator.stream.phase_latency import phase_latencies
from validator.stream.run_record import RunRecord

pytestmark = pytest.mark.unit

KILL = fault("kill", 100.5, 140)


def output(at: int) -> Output:
    """One result a second with two definitions of latency. Results are slow while the fault is active."""
    one = second(at, latency=30.0 if 101 <= at < 140 else 1.0)
    slow = Spread({16 if 101 <= at < 140 else 7: 1}, 1_000_000, 1_000_000)
    return replace(one, latency={**one.latency, "last_input": slow})


def reported(state: Path, until: int) -> dict[str, Any]:
    """The report of a run of ``until`` seconds, whose ledger is in ``state``."""
    record = RunRecord(ledger=Ledger(), faults=(KILL,))
    assert record.ledger is not None
    for at in range(until):
        record.ledger.series.add(output(at))
        if at % 500 == 0:
            record.ledger.measure(record.faults, CostRules(), until_us=us(at))
    found, _ = record.ledger.measure(record.faults, CostRules(), until_us=us(until))
    phases = tuple(
        Phase(
            phase.stretch.phase,
            phase.stretch.fault.name if phase.stretch.fault else None,
            phase.stretch.start_us,
            phase.stretch.end_us,
            results=phase.output.results if phase.output else None,
        )
        for phase in found
    )
    LedgerWriter(state).write_now(record)
    return build(replace(clean(), phases=phases, faults=record.faults, latency_absent_because=None))


def test_a_phase_has_its_own_results_to_the_second_also_in_a_long_run(tmp_path: Path) -> None:
    report = reported(tmp_path, 6_000)
    latencies = phase_latencies(tmp_path, report)
    assert [phase.name for phase in latencies][:2] == ["control, from 13:46:40", "failure, kill, from 13:48:20"]
    control, failure = latencies[0].latency, latencies[1].latency
    # The fault was injected in the middle of a second, which belongs to the phase before it.
    assert set(failure) == {"window_close", "last_input"}
    assert (control["last_input"].count, failure["last_input"].count) == (101, 39)
    assert (control["last_input"].counts[7], failure["last_input"].counts[16]) == (101, 39)
    assert sum(phase.latency["window_close"].count for phase in latencies) == 6_000


def test_an_unmeasured_phase_has_no_latency(tmp_path: Path) -> None:
    report = reported(tmp_path, 300)
    report["phases"][0]["results"] = None
    assert phase_latencies(tmp_path, report)[0].name.startswith("failure, kill")
    assert phase_latencies(tmp_path, {**report, "latency_absent_because": "a topic has CreateTime"}) == ()


def test_without_a_fault_the_only_phase_is_the_whole_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = RunRecord()
    record.latency["window_close"].add(0.3, 5)
    counters.write(tmp_path, record)
    report = Publisher(config(tmp_path), tmp_path).publish(replace(clean(), latency_absent_because=None))
    (latencies,) = phase_latencies(tmp_path, report)
    assert (latencies.name, latencies.latency["window_close"].count) == ("whole run", 5)
    assert main(["report", str(tmp_path), "--format", "html"]) == 0
    assert '<td>whole run</td><td>window close</td><td class="n">5</td>' in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "[]", json.dumps({"classified": 1})])
def test_a_damaged_file_has_no_latency(tmp_path: Path, text: str) -> None:
    (tmp_path / counters.FILE).write_text(text)
    (latencies,) = phase_latencies(tmp_path, build(replace(clean(), latency_absent_because=None)))
    assert latencies.latency == {}
