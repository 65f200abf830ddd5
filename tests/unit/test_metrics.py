"""The metrics are well-formed and complete from the first scrape, and counters never fall."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.unit.publish_snapshots import BOUNDS, NOON_US, SECOND, broken, clean
from validator.model.classes import Contribution, Result, ViolationClass
from validator.model.snapshot import FaultWindow, Histogram, Snapshot
from validator.publish.catalogue import CATALOGUE, PHASES, PREFIX, render
from validator.publish.metrics import SnapshotCollector, registry
from validator.publish.samples import FAULTS_SHOWN
from validator.reconcile.judge import CONTRIBUTIONS
from validator.stream.run_record import RunRecord

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(collector: SnapshotCollector) -> Series:
    series: Series = {}
    text = generate_latest(registry(collector)).decode()
    for family in parse_text(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in series, f"{key} twice"
            series[key] = sample.value
    return series


def after(*snapshots: Snapshot) -> SnapshotCollector:
    collector = SnapshotCollector("clickstream")
    for snapshot in snapshots:
        collector.update(snapshot)
    return collector


def value(series: Series, name: str, **labels: str) -> float:
    return series[PREFIX + name, tuple(sorted({"pipeline": "clickstream", **labels}.items()))]


PUBLIC = """
    batch_duration_seconds build_info{version,scheme} canary_class_recall_ratio{class} canary_detection_delay_seconds
    canary_false_alarms canary_judged_timestamp_seconds canary_recall_ratio canary_silent_after_seconds
    contributions{class} coverage_complete coverage_differences detection_delay_seconds events_total{class}
    fault_active{fault,kind,target} fault_downtime_seconds{fault,kind} fault_expects{class}
    fault_failure_cost_seconds{fault,kind} fault_latency_penalty_ratio{fault,kind} fault_recovered{fault,kind}
    fault_recovery_seconds{fault,kind} fault_resolution_seconds{fault,kind}
    fault_throughput_penalty_ratio{fault,kind} guarantee_declared{guarantee} guarantee_status{guarantee,over,status}
    input_watermark_timestamp_seconds last_batch_timestamp_seconds latency_resolution_seconds
    latency_seconds{definition,phase} outstanding_events{state} read_lag_events{topic} read_lag_seconds{topic}
    reclassified_total{from,to} reliability_ratio{measure} reliable_events_total results_total{class}
    second_reading_offsets_total
    start_timestamp_seconds state_bytes{table} unconsumed_overdue_events violations_confirmed_total{class,phase}
    violations_expected{class} violations_open{class} violations_retracted_total{class} violations_unexpected{class}
"""
"""Names and labels on which queries of users depend: a rename breaks them, a new name is added here."""


def test_the_catalogue_has_the_public_names() -> None:
    labels = ((metric.name, ",".join(label.name for label in metric.labels)) for metric in CATALOGUE)
    assert {f"{name}{{{names}}}" if names else name for name, names in labels} == set(PUBLIC.split())


@pytest.mark.parametrize("snapshots", [(), (clean(),), (clean(), broken())])
def test_scrapes_are_well_formed_in_both_formats(snapshots: tuple[Snapshot, ...]) -> None:
    collector = after(*snapshots)
    series = scrape(collector)
    assert all(("pipeline", "clickstream") in labels for _, labels in series)
    text = generate_openmetrics(registry(collector)).decode()  # type: ignore[no-untyped-call]
    assert list(parse_openmetrics(text))  # type: ignore[no-untyped-call]


def test_a_count_of_violations_names_the_newest_of_them() -> None:
    text = generate_openmetrics(registry(after(clean(), broken()))).decode()  # type: ignore[no-untyped-call]
    exemplars = {
        (sample.labels["class"], sample.exemplar.labels["violation"], sample.exemplar.value)
        for family in parse_openmetrics(text)  # type: ignore[no-untyped-call]
        for sample in family.samples
        if sample.exemplar is not None
    }
    confirmed = [v for v in broken().violations_latest if v.state == "confirmed"]
    newest = {(v.violation_class, v.phase): v for v in sorted(confirmed, key=lambda v: v.changed_us)}
    counted = broken().confirmed_total
    assert exemplars == {(v.violation_class, v.id, v.count) for place, v in newest.items() if place in counted}
    assert exemplars


def test_every_class_exists_at_zero_from_the_first_scrape() -> None:
    series = scrape(after())
    for name in Contribution:
        assert value(series, "events_total", **{"class": name}) == 0
        assert value(series, "contributions", **{"class": name}) == 0
    for name, other in permutations(set(Contribution) - {Contribution.EXPECTED}, 2):
        assert value(series, "reclassified_total", **{"from": name, "to": other}) == 0
    for result in Result:
        assert value(series, "results_total", **{"class": result}) == 0
    for violation in ViolationClass:
        for phase in ("control", "failure", "recovery"):
            assert value(series, "violations_confirmed_total", phase=phase, **{"class": violation}) == 0
        assert value(series, "violations_open", **{"class": violation}) == 0
    assert value(series, "guarantee_status", guarantee="exactly_once", over="24h", status="unknown") == 1
    assert value(series, "latency_seconds_count", definition="last_input", phase="recovery") == 0
    assert math.isnan(value(series, "reliability_ratio", measure="exact"))


def test_a_move_is_between_classes_that_have_a_series() -> None:
    """Every counted move needs a series beforehand: `increase` does not count the first value of a new series."""
    record = RunRecord()
    for held in CONTRIBUTIONS:
        record.classified({name: int(name == held) for name in CONTRIBUTIONS})
    assert len(record.reclassified_total) > 10
    known = {key for key in scrape(after()) if key[0] == f"{PREFIX}reclassified_total"}
    scraped = scrape(after(replace(clean(), reclassified_total=record.reclassified_total)))
    assert {key for key in scraped if key[0] == f"{PREFIX}reclassified_total"} == known
    assert len(known) == 14 * 13


def test_before_the_first_batch_no_batch_time_is_published() -> None:
    series = scrape(after(replace(clean(), taken_us=0)))
    assert math.isnan(value(series, "last_batch_timestamp_seconds"))


def test_the_resolution_of_a_fault_has_a_series_where_it_is_known() -> None:
    fault = {"fault": "kill-one-worker", "kind": "process_kill"}
    for resolution, shown in ((1.5, True), (None, False)):
        measured = {**broken().fault_measures["f-1"], "resolution_seconds": resolution}
        series = scrape(after(replace(broken(), fault_measures={"f-1": measured})))
        known = any(name == f"{PREFIX}fault_resolution_seconds" for name, _ in series)
        assert known == shown
        if known:
            assert value(series, "fault_resolution_seconds", **fault) == resolution


def test_no_series_of_the_first_scrape_disappears() -> None:
    later = scrape(after(clean(), broken()))
    gone = {key for key in scrape(after()) if key not in later}
    # The first measurement decides a histogram's buckets.
    assert {name for name, _ in gone} <= {f"{PREFIX}{n}_seconds_bucket" for n in ("latency", "detection_delay")}


def test_every_value_of_a_snapshot_is_published() -> None:
    series = scrape(after(broken()))
    assert value(series, "contributions", **{"class": "missing"}) == 3
    assert value(series, "outstanding_events", state="pending") == 10
    assert value(series, "violations_confirmed_total", phase="failure", **{"class": "missing"}) == 2
    assert value(series, "violations_retracted_total", **{"class": "missing"}) == 1
    assert value(series, "violations_open", **{"class": "missing"}) == 1
    assert value(series, "violations_open", **{"class": "duplicate"}) == 0
    assert value(series, "guarantee_status", guarantee="exactly_once", over="run", status="fail") == 1
    assert value(series, "guarantee_status", guarantee="exactly_once", over="run", status="pass") == 0
    assert value(series, "reliability_ratio", measure="exact") == pytest.approx(980 / 990)
    assert value(series, "reliable_events_total") == 987
    assert value(series, "latency_seconds_count", definition="last_input", phase="control") == 3
    assert value(series, "latency_seconds_bucket", definition="last_input", phase="failure", le="10") == 3
    assert value(series, "latency_seconds_bucket", definition="last_input", phase="failure", le="+Inf") == 4
    fault = {"fault": "kill-one-worker", "kind": "process_kill"}
    assert value(series, "fault_active", target="taskmanager-1", **fault) == 1
    assert value(series, "fault_failure_cost_seconds", **fault) == 29.1
    assert value(series, "fault_downtime_seconds", **fault) == 12
    assert not any(name == f"{PREFIX}fault_recovery_seconds" for name, _ in series)
    assert value(series, "read_lag_events", topic="click") == 5
    assert value(series, "read_lag_seconds", topic="click") == 2
    assert math.isnan(value(series, "read_lag_seconds", topic="output"))
    assert value(series, "last_batch_timestamp_seconds") == NOON_US / 1e6
    assert value(series, "coverage_complete") == 1
    assert value(series, "state_bytes", table="facts") == 4096
    assert value(series, "batch_duration_seconds_count") == 1


def test_a_run_without_phases_is_all_control() -> None:
    whole = replace(clean(), latency={"last_input": Histogram(BOUNDS, (1, 0, 0, 0), 0.05, 0.05)})
    series = scrape(after(whole))
    assert value(series, "latency_seconds_count", definition="last_input", phase="control") == 1
    apart = replace(broken(), phases=tuple(replace(phase, latency={}) for phase in broken().phases))
    series = scrape(after(apart))
    assert value(series, "latency_seconds_count", definition="last_input", phase="control") == 0
    measured = {labels for name, labels in series if name == f"{PREFIX}latency_seconds_count"}
    assert {dict(labels)["phase"] for labels in measured} == set(PHASES)


def test_a_batch_is_counted_once_however_often_it_is_published() -> None:
    same = clean()
    assert value(scrape(after(same, same, replace(same, batches=8))), "batch_duration_seconds_count") == 2


def test_restored_batch_durations_replace_the_collectors_own_count() -> None:
    restored = replace(clean(), batch_durations=Histogram(BOUNDS, (5, 6, 0, 0), 3.5, 0.9))
    assert value(scrape(after(restored)), "batch_duration_seconds_count") == 11


def counters(series: Series) -> Series:
    ends = ("_total", "_bucket", "_count", "_sum")
    return {key: shown for key, shown in series.items() if key[0].endswith(ends)}


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6))
def test_counters_never_fall_whatever_is_published(steps: list[tuple[int, int, int]]) -> None:
    collector = SnapshotCollector("clickstream")
    before: Series = {}
    for turn, (a, b, c) in enumerate(steps):
        collector.update(
            replace(
                clean(),
                batches=turn,
                contributions={"missing": a, "processed": b, "pending": c},
                results={"correct": b, "excess": c},
                confirmed_total={("missing", "failure"): a},
                retracted_total={"missing": c},
                reclassified_total={("missing", "late"): b},
                latency={"last_input": Histogram(BOUNDS, (a, b, c, 0), float(a + b + c), None)},
                detection_delay=Histogram(BOUNDS, (c, b, a, 0), float(a + b + c), None),
            )
        )
        now = counters(scrape(collector))
        buckets = f"{PREFIX}latency_seconds_bucket", f"{PREFIX}detection_delay_seconds_bucket"
        for key, shown in before.items():
            if key in now or key[0] not in buckets:
                assert now[key] >= shown, key
        before = now


def test_faults_are_bounded_and_a_repeated_name_is_one_series() -> None:
    many = tuple(
        FaultWindow(f"f-{n}", f"fault-{n}", "process_kill", "worker", NOON_US + n * SECOND, None, None, NOON_US)
        for n in range(3 * FAULTS_SHOWN)
    )
    series = scrape(after(replace(clean(), faults=many)))
    assert sum(name == f"{PREFIX}fault_active" for name, _ in series) == FAULTS_SHOWN
    repeated = tuple(replace(fault, name="again") for fault in many[:3])
    series = scrape(after(replace(clean(), faults=(*repeated, replace(repeated[0], id="x", healed_us=None)))))
    assert value(series, "fault_active", fault="again", kind="process_kill", target="worker") == 1


def test_a_fault_that_is_not_healed_stays_however_many_come_after_it() -> None:
    lasting = FaultWindow("f", "lasting", "process_kill", "worker", NOON_US, None, None, None)
    healed = [
        FaultWindow(f"f-{n}", f"kill-{n}", "process_kill", "worker", NOON_US + n + 1, None, None, NOON_US + n + 2)
        for n in range(2 * FAULTS_SHOWN)
    ]
    series = scrape(after(replace(clean(), faults=(lasting, *healed))))
    assert value(series, "fault_active", fault="lasting", kind="process_kill", target="worker") == 1
    assert sum(name == f"{PREFIX}fault_active" for name, _ in series) == FAULTS_SHOWN


def test_each_start_has_its_own_instant() -> None:
    for started_seconds in (1234.5, 1235.5):
        collector = SnapshotCollector("clickstream", started_seconds)
        collector.update(clean())
        assert value(scrape(collector), "start_timestamp_seconds") == started_seconds


def test_no_label_could_carry_an_id_a_key_or_an_offset() -> None:
    names = {label.name for metric in CATALOGUE for label in metric.labels}
    assert not names & {"id", "key", "offset", "partition", "window", "run", "cell"}


def test_the_reference_is_current() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8") == render()
