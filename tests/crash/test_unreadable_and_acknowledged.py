"""Killed between reading and publishing, the sidecar lists each undecodable result once."""

from __future__ import annotations

import json

import pytest

from tests.crash import history
from tests.crash.delta_files import rows_of
from tests.crash.sidecars import Sidecars
from tests.crash.test_kill_at_every_step import killed
from validator.cli.main import main


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_undecodable_results_are_reported_once_and_stay_acknowledged(sidecars: Sidecars) -> None:
    state = sidecars.state("killed")
    history.append(sidecars.servers, history.clicks(sidecars.name, range(1)))
    # One result decodes, so the engine is at fault, not the configuration.
    history.append(sidecars.servers, list(history.answers(sidecars.name, range(1)))[:1])
    unreadable(sidecars, "answer!", "another")
    killed(sidecars, "after_facts:1")
    killed(sidecars, "after_violations:1")
    assert (sidecars.once("killed"), reported_undecodable(sidecars)) == (1, 2)
    before = sidecars.report("killed")["violations_unacknowledged"]
    assert main(["ack", str(state), "--class", "undecodable", "--reason", "the old version's"]) == 0
    unreadable(sidecars, "a third")
    killed(sidecars, "after_facts:1")
    assert (sidecars.once("killed"), reported_undecodable(sidecars)) == (1, 3)
    report = sidecars.report("killed")
    assert report["violations"]["confirmed"]["undecodable"] == 3
    assert report["violations_unacknowledged"] == before - 2 + 1
    shown = json.loads((state / "violations.json").read_text())["violations"]
    [listed] = [one for one in shown if one["class"] == "undecodable"]
    assert listed["count"] == 3
    assert listed["first"] == report["violations"]["first_confirmed"]["undecodable"] < listed["changed"]


def unreadable(sidecars: Sidecars, *values: str) -> None:
    history.append(sidecars.servers, (history.Record(f"{sidecars.name}-out", value) for value in values))


def reported_undecodable(sidecars: Sidecars) -> int:
    rows = rows_of(sidecars.state("killed") / "violations", ["class", "confirmed", "retracted"])
    return sum(row["confirmed"] - row["retracted"] for row in rows if row["class"] == "undecodable")
