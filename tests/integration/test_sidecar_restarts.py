"""A start from saved cells and a start that folds all facts reach the same verdicts."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.integration.sidecar_fixtures import Pipeline, Run, answer, click, pipeline, spark
from validator.stream.generations import _rules_of
from validator.stream.recovery import time_rules_of
from validator.stream.saved_cells import FILE, SavedCells, saved_cells

__all__ = ["pipeline", "spark"]
pytestmark = [pytest.mark.timeout(600)]

KEYS = 5_000
"""Enough settled cells for a removal from memory (`EVICTED_AT_ONCE`)."""


def judged(run: Run) -> dict[str, Any]:
    """Return the verdict and what it depends on. The number of sampled cells is left out: it depends on what is in
    memory."""
    names = ("verdicts", "contributions", "results", "inputs")
    cells = {name: count for name, count in run.report["cells"].items() if name != "sampled"}
    violations = {name: run.report["violations"][name] for name in ("confirmed", "retracted", "suspected")}
    return {name: run.report[name] for name in names} | {"cells": cells} | violations


def test_records_of_settled_cells_are_judged_the_same_after_a_restart(pipeline: Pipeline) -> None:
    pipeline.create()
    pipeline.clicks(*(click(number, 1, f"k{number}") for number in range(KEYS)), click(KEYS, 60, "last"))
    pipeline.answers(*(answer([number], 0, f"k{number}") for number in range(KEYS)), answer([KEYS], 6, "last"))
    first = pipeline.once(state="saved")
    assert (first.status, first.counts()) == (0, {"expected": KEYS + 1, "processed": KEYS + 1})
    config = pipeline.config(state="saved")
    time_rules = time_rules_of(config)
    saved = saved_cells(pipeline.state("saved"), _rules_of(config), time_rules)
    assert isinstance(saved, SavedCells)
    assert saved.evicted.sums.cells_seen == KEYS

    shutil.copytree(pipeline.state("saved"), pipeline.state("folded"))
    (pipeline.state("folded") / FILE).unlink()
    # A repeated result, an event whose result is lost, and a late event with its result.
    pipeline.answers(answer([7], 0, "k7"), answer([9_001], 0, "k9"))
    pipeline.clicks(click(9_000, 2, "k8"), click(9_001, 2, "k9"))
    runs = {state: pipeline.once(state=state) for state in ("saved", "folded")}
    assert judged(runs["saved"]) == judged(runs["folded"])
    found = {"expected": KEYS + 3, "processed": KEYS + 2, "duplicate": 1, "missing": 1}
    assert (runs["saved"].status, runs["saved"].counts()) == (1, found)
    assert runs["saved"].report["cells"]["seen"] == KEYS + 1
