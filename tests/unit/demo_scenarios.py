"""Chaos days as the demo plans them, without a broker or an engine."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import yaml

from testbed.demo.options import DemoPlan, plan_of
from testbed.demo.targets import RunContext

PLACES = RunContext(Path("run"), "127.0.0.1:9092", ())
LEADER = {"kind": "leader_move", "target": "click", "for": "4s"}
WITHOUT_DISK = {"reference", "mutant"}
WORKER = {"labels": {"role": "worker"}}


def planned(engine: str = "reference", **given: Any) -> DemoPlan:
    """The plan that `streamproof demo` makes from these options."""
    unsaid = dict.fromkeys(("fault", "faults", "plan", "faster", "seconds", "workload"))
    return plan_of(Namespace(**{**unsaid, "engine": engine, "seed": 1, "open": False, **given}))


def in_file(folder: Path, *faults: dict[str, Any], **more: Any) -> str:
    """A file in ``folder`` that schedules these faults, from 9 s after the start to 6 s before the end."""
    file = folder / "day.yaml"
    file.write_text(yaml.safe_dump({"schedule": {"control": "9s", "recovery": "6s", "faults": list(faults)}, **more}))
    return str(file)
