"""Totals of classifications only grow, and a move between classes is not a second classification."""

from __future__ import annotations

from validator.stream.run_record import RunRecord


def test_the_classified_total_includes_expected_contributions() -> None:
    record = RunRecord()
    record.classified({"expected": 100, "pending": 100, "processed": 0, "duplicate": 0})
    record.classified({"expected": 240, "pending": 40, "processed": 200, "duplicate": 1})
    assert record.classified_total["expected"] == 240
    assert record.reclassified_total == {("pending", "processed"): 60}


def test_the_classified_total_never_falls() -> None:
    record = RunRecord()
    record.classified({"expected": 100, "processed": 100})
    record.classified({"expected": 90, "processed": 90})
    assert record.classified_total["expected"] == 100
