"""The report has every key of the contract, null for absent measures, and is replaced as a whole file."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from tests.unit.publish_snapshots import NOON_US, broken, clean
from validator.model.coverage import ReadTwice
from validator.model.snapshot import Snapshot
from validator.publish import html, report_types
from validator.publish.atomic import replace_file
from validator.publish.effective import effective_guarantee
from validator.publish.report import build, build_violations, records_of, render_json, write
from validator.publish.text import render
from validator.publish.times import parse_rfc3339, rfc3339

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]


def contract_report() -> dict[str, Any]:
    text = (ROOT / "docs" / "CONTRACT.md").read_text(encoding="utf-8")
    found = re.search(r"```json\n(.*?)```", text, re.DOTALL)
    assert found is not None
    loaded = json.loads(found.group(1))
    assert isinstance(loaded, dict)
    return loaded


def missing_keys(wanted: Any, given: Any, place: str = "") -> list[str]:
    if isinstance(wanted, dict):
        absent = [f"{place}.{key}" for key in wanted if key not in given]
        present = [key for key in wanted if key in given]
        return absent + [m for key in present for m in missing_keys(wanted[key], given[key], f"{place}.{key}")]
    if isinstance(wanted, list) and wanted:
        assert given, f"{place} is empty, so its entries are not compared"
        return [m for entry in given for m in missing_keys(wanted[0], entry, f"{place}[]")]
    return []


def test_the_report_has_every_key_of_the_contracts_example() -> None:
    wanted = contract_report()
    # The operator of the engine supplies that block. Without `engine.effective` it is null.
    assert missing_keys(wanted, build(broken(), wanted["effective_guarantee"])) == []
    assert build(broken())["effective_guarantee"] is None


def differences(value: Any, wanted: Any, place: str = "report") -> list[str]:
    """Return where ``value`` differs from the type ``wanted``: keys of a `TypedDict`, types of leaves."""
    origin = get_origin(wanted)
    if origin is UnionType:
        found = [differences(value, part, place) for part in get_args(wanted)]
        return [] if [] in found else min(found, key=len)
    if is_typeddict(wanted):
        if not isinstance(value, dict):
            return [f"{place} is {value!r}"]
        hints = get_type_hints(wanted)
        absent = [f"{place}.{name} is absent" for name in hints if name not in value]
        extra = [f"{place}.{name} has no type" for name in value if name not in hints]
        known = [name for name in hints if name in value]
        return absent + extra + [d for name in known for d in differences(value[name], hints[name], f"{place}.{name}")]
    if origin is dict:
        return [d for name, part in value.items() for d in differences(part, get_args(wanted)[1], f"{place}.{name}")]
    if origin is list:
        return [d for part in value for d in differences(part, get_args(wanted)[0], f"{place}[]")]
    accepted = (int, float) if wanted is float else wanted
    is_right = isinstance(value, accepted) and (wanted is bool or not isinstance(value, bool))
    return [] if is_right else [f"{place} is {value!r}, not {wanted}"]


@pytest.mark.parametrize("snapshot", [clean(), broken()])
def test_reports_have_the_keys_and_types_that_report_types_declares(tmp_path: Path, snapshot: Snapshot) -> None:
    stated = tmp_path / "effective.json"
    stated.write_text('{"engine": "flink", "guarantee": "at_least_once", "commit_interval_seconds": 10}')
    effective = effective_guarantee(stated, snapshot.guarantee)
    assert effective is not None
    assert effective["commit_interval_seconds"] == 10
    report = json.loads(render_json(build(snapshot, effective)))
    assert differences(report, report_types.Report) == []
    violations = json.loads(render_json(build_violations(snapshot)))
    assert differences(violations, report_types.ViolationsReport) == []


def test_the_report_has_the_same_keys_when_nothing_is_known() -> None:
    unknown = replace(
        clean(), contributions={}, results={}, inputs={}, late_records={}, cells={}, verdicts_over={}, settled={},
        reliable_throughput_per_second=None, coverage=(), input_watermark_us=None, input_events_per_second=None,
        violations={},
    )  # fmt: skip
    report = build(unknown)
    for part in ("contributions", "results", "inputs", "late_records", "cells", "reliability"):
        assert report[part].keys() == build(clean())[part].keys()
        assert set(report[part].values()) == {None}, part
    assert set(report["latency_seconds"]["last_input"].values()) == {None}
    assert report["verdicts_over"]["1h"] == {"at_most_once": None, "at_least_once": None, "exactly_once": None}


def test_incorrect_is_misplaced_plus_unknown_ids() -> None:
    counts = {**clean().contributions, "misplaced": 2, "unknown_id": 3}
    assert build(replace(clean(), contributions=counts))["contributions"]["incorrect"] == 5
    del counts["misplaced"]
    assert build(replace(clean(), contributions=counts))["contributions"]["incorrect"] is None


def test_ratios_are_over_settled_cells() -> None:
    reliability = build(clean())["reliability"]
    assert (reliability["handled_ratio"], reliability["exact_ratio"]) == (1.0, 980 / 990)
    nothing = replace(clean(), settled={"expected": 0, "handled": 0, "exact": 0})
    assert build(nothing)["reliability"]["handled_ratio"] is None


def test_the_outcome_is_the_verdict_of_the_declared_guarantee() -> None:
    report = build(broken())
    assert report["outcome"] == report["verdicts"]["exactly_once"] == "fail"


def test_times_are_rfc_3339_utc() -> None:
    assert build(clean())["time"] == "2026-01-31T12:00:00.000000Z"
    assert rfc3339(None) is None
    assert rfc3339(2**62) is None
    assert parse_rfc3339(rfc3339(NOON_US + 1) or "") == NOON_US + 1


def test_a_fault_carries_its_measures_and_violations() -> None:
    fault = build(broken())["faults"][0]
    assert (fault["failure_cost_seconds"], fault["recovery_seconds"], fault["recovered"]) == (29.1, None, False)
    assert fault["violations"] == {"missing": 1, "duplicate": 1}
    assert fault["healed"] is None


def test_the_report_says_what_became_of_the_records_and_how_much_was_read_again() -> None:
    said = " ".join(render(build(clean())).split())
    assert "985 settled + 10 open + 0 out of scope + 5 in no cell + 0 undecodable + 0 tombstone = 1,000 read." in said
    assert "Answers: 50 in cells + 0 undecodable + 0 tombstone = 50 read." in said
    assert "Read again: 1,200 offsets in 3 ranges." in said
    found = replace(clean(), read_twice=ReadTwice(3, 1_200, 2))
    said = " ".join(render(build(found)).split())
    assert "in 3 ranges; 2 ranges could not be read again." in said


def test_the_coverage_sums_are_printed() -> None:
    sums = build(clean())["coverage"]["sums"]
    assert sums["records"] + sums["expired"] + sums["invisible"] == sums["offsets_spanned"] == 1055


def test_violations_are_newest_first_with_their_evidence() -> None:
    listed = build_violations(broken())
    assert [v["id"] for v in listed["violations"]] == ["v-2", "v-1"]
    assert listed["violations"][0]["ids"] == ["17", "18"]
    assert listed["counts"] == {"confirmed": 5, "retracted": 1, "suspected": 0}
    assert records_of(listed) == broken().violations_latest[::-1]


def test_parts_of_the_snapshot_have_the_names_of_the_contract_in_its_order() -> None:
    report, listed = build(broken()), build_violations(broken())
    parts = (report["coverage"]["partitions"][0], listed["violations"][0], report["settled_positions"][0])
    partition, violation, settled = (" ".join(part) for part in parts)
    assert partition == (
        "role topic partition first_offset next_offset high_watermark last_stable_offset records expired invisible "
        "newest_event_time read_through lag_events"
    )
    assert violation == (
        "id class state window_start key count ids first changed phase fault acknowledged explanation "
        "acknowledged_by acknowledged_at"
    )
    assert settled == "topic partition first_offset last_offset records by reason"


def test_the_written_report_equals_the_built_one(tmp_path: Path) -> None:
    report = write(tmp_path, broken())
    assert json.loads((tmp_path / "report.json").read_text()) == report
    assert json.loads((tmp_path / "violations.json").read_text()) == build_violations(broken())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.json", "violations.json"]


def test_not_a_number_is_never_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        render_json(build(replace(clean(), reliable_throughput_per_second=float("nan"))))


def test_a_concurrent_reader_sees_whole_files_only(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    texts = [json.dumps({"n": n, "fill": "x" * 20_000}) for n in range(2)]
    replace_file(path, texts[0])
    done = threading.Event()
    seen: list[str] = []

    def read() -> None:
        while not done.is_set():
            seen.append(path.read_text(encoding="utf-8"))

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(100):
        replace_file(path, texts[turn % 2])
    done.set()
    reader.join()
    assert seen
    assert set(seen) <= set(texts)


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    replace_file(path, "old")
    with pytest.raises(UnicodeEncodeError):
        replace_file(path, "\ud800")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_a_violation_whose_first_confirmation_is_not_known_is_shown() -> None:
    """It was confirmed after its cell was retired."""
    found = replace(broken(), first_confirmed_us={})
    said = render(build(found))
    assert "First confirmed" not in said
    assert "What broke" in said
    assert "first confirmed" not in html.render(build(found))
