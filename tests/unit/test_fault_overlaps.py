"""Overlapping faults: the active ones go on while another one is healed before them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults import runner
from faults.config import parse
from faults.errors import FaultRefused, NotVerified
from faults.facts import Facts
from faults.fault import Fault
from faults.journal import Entry, read
from faults.schedule import timeline


class Recorded:
    """An injection that is active at once. It counts the calls of its maintenance, also those after its healing."""

    def __init__(self) -> None:
        self.facts = Facts()
        self.holds = self.holds_since_healed = 0
        self.is_heal_called = False
        self.proof: Callable[[], bool] = lambda: True
        self.loss: Callable[[], bool] = lambda: False

    def prepare(self) -> None:
        """Nothing to find."""

    def inject(self) -> None:
        """Nothing to break."""

    def maintain(self) -> None:
        self.holds += 1
        self.holds_since_healed += self.is_heal_called
        if self.loss():
            raise NotVerified("lost before its time.")

    def is_active(self) -> bool:
        return True

    def heal(self) -> None:
        self.is_heal_called = True

    def is_healed(self) -> bool:
        return self.is_heal_called and self.proof()


Faults = dict[str, Recorded]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Faults:
    """Name of a fault -> the injection that stands in for it."""
    found: Faults = {"early": Recorded(), "next": Recorded(), "whole": Recorded()}

    def injection(fault: Fault, *_: object) -> Recorded:
        return found[fault.name]

    monkeypatch.setattr(runner, "injection", injection)
    monkeypatch.setattr(runner, "_PROOF_SECONDS_LEAST", 0.0)
    return found


def ran(folder: Path, lasts: str, **own: str) -> dict[str, Entry]:
    """Run a group for ``lasts``: the faults ``own`` with durations, and ``whole``. Returns name -> journal entry."""
    links = {name: {"type": "link", "listen": f"127.0.0.1:{n}", "upstream": "127.0.0.1:1"}
             for n, name in enumerate([*own, "whole"], start=2)}  # fmt: skip
    faults: list[dict[str, Any]] = [{"kind": "net_reset", "target": name, "name": name} for name in links]
    for fault in faults[:-1]:
        fault["for"] = own[fault["name"]]
    config = parse(
        {"state": str(folder), "targets": links, "schedule": {"faults": [{"together": faults, "for": lasts}]}}
    )
    try:
        runner.run(config, timeline(config), lambda _: None, threading.Event())
    finally:
        entries = {entry.fault.name: entry for entry in read(folder).values()}
        assert all(entry.is_healed for entry in entries.values())
    return entries


def test_other_faults_stay_active_while_one_is_proven_healed(tmp_path: Path, made: Faults) -> None:
    held_before: list[int] = []

    def proof() -> bool:
        held_before.append(made["whole"].holds)
        return made["whole"].holds > held_before[0]

    made["early"].proof = proof
    entries = ran(tmp_path, "2s", early="10ms")
    assert entries["early"].states["healed"] < entries["whole"].states["heal_started"]


def test_a_healed_unproven_fault_is_not_maintained(tmp_path: Path, made: Faults) -> None:
    made["early"].proof = lambda: made["whole"].is_heal_called
    entries = ran(tmp_path, "1s", early="10ms", next="500ms")
    assert entries["early"].states["heal_started"] < entries["next"].states["heal_started"]
    assert entries["early"].states["healed"] > entries["whole"].states["heal_started"]
    assert made["whole"].holds > 0
    assert made["early"].holds_since_healed == 0


def test_a_fault_lost_while_another_is_proven_ends_the_group(tmp_path: Path, made: Faults) -> None:
    made["early"].proof = lambda: made["whole"].is_heal_called
    made["whole"].loss = lambda: made["early"].is_heal_called
    with pytest.raises(NotVerified, match="lost before its time"):
        ran(tmp_path, "5s", early="10ms")


def test_a_refused_fault_of_an_active_group_ends_it_as_not_verified(
    tmp_path: Path, made: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise FaultRefused("the container is gone.")

    monkeypatch.setattr(made["whole"], "inject", refuse)
    with pytest.raises(NotVerified, match=r"^the container is gone\.$"):
        ran(tmp_path, "30s", early="20s")
    entries = {entry.fault.name: entry for entry in read(tmp_path).values()}
    assert {entry.over_because for entry in entries.values()} == {"the container is gone."}
