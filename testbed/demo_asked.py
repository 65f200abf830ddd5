"""What a chaos day is asked for: a fault configuration without targets, from the user's file or from a plan's name.

Raises FaultConfigError and FaultRefused, one sentence each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from faults.config import expanded
from faults.errors import FaultConfigError, FaultRefused
from testbed import node
from testbed.demo_targets import WORKERS_MAX, instance_names, link_names, node_name, roles

DELAYS: Final = "pgval-delay-"
"""How the names of plans begin that delay what a worker sends, by less and by more than `TIMEOUT_SECONDS`."""
TIMEOUT_SECONDS: Final = 3.0
"""PGVal's, for sessions and for the heartbeats of a cluster."""
FAILURE_FREE: Final = "120s"
"""The length that ``--plan streambench-node`` takes half of."""
_OURS: Final = ("targets", "kafka", "state", "backend")
_AT_ONCE: Final = {"vogel-kill-2": 2, "vogel-kill-4": 4, "vogel-crash-2": 2}
"""Plan -> the workers that it hits at once, where they are several."""
_DRIVERS: Final = {"spark": "driver"}
"""The role that a named plan kills, where it is not called worker."""
_KEPT_DOWN: Final = ("pgval-crash", "streambench-node")
"""Plans that keep one worker down. Storm's Supervisor goes with it: it would start the worker again at once."""


def read(file: Path) -> dict[str, Any]:
    """The content of the user's file."""
    try:
        data = yaml.safe_load(expanded(file.read_text(encoding="utf-8"), file))
    except OSError as error:
        raise FaultConfigError(f"{file}: cannot be read ({error.strerror}).") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise FaultConfigError(f"{file}: is no valid YAML ({' '.join(str(error).split())}).") from error
    if not isinstance(data, dict):
        raise FaultConfigError(f"{file}: must hold a mapping with schedule: or plan:.")
    given = [key for key in _OURS if key in data]
    if given:
        raise FaultConfigError(f"{file}: {', '.join(given)}: the demo gives its own; leave it out in a demo's file.")
    return data


def named(plan: str, faster: float | None, engine: str, inputs: tuple[str, ...]) -> dict[str, Any]:
    """A file with that plan on the demo's targets: workers, or the network of one."""
    asked: dict[str, Any] = {"name": plan}
    if plan.startswith(DELAYS):
        asked |= _delayed(plan, engine)
    elif plan == "ospbench-poison":
        asked["target"] = {"name": inputs[0]}
    elif plan != "ospbench-master":
        asked["target"] = _workers(plan, engine)
    if faster is not None:
        asked["faster"] = faster
    if plan == "streambench-node":
        asked["failure_free"] = FAILURE_FREE
    return {"plan": asked}


def _workers(plan: str, engine: str) -> dict[str, Any]:
    role = _DRIVERS.get(engine, "worker")
    at_once, most = _AT_ONCE.get(plan, 1), roles(engine, WORKERS_MAX).count(role)
    if at_once > 1 and at_once >= most:
        raise FaultRefused(
            f"--plan {plan} hits {at_once} workers at once, and the demo has {most} of {engine} at most, of which one "
            "must be left; take a plan that hits fewer, such as vogel-kill-1."
        )
    if engine == "storm" and plan in _KEPT_DOWN:
        return {"name": "storm-supervisor"}
    workers = [name for name in instance_names(engine) if f"-{role}" in name]
    # One that is all there is, is meant. A node of StreamBench takes no input; here each does: the first is named.
    if len(workers) == 1 or plan == "streambench-node":
        return {"name": workers[0]}
    return {"labels": {"role": role}}


def _delayed(plan: str, engine: str) -> dict[str, Any]:
    """Type and target of a plan that delays one worker: all its packets, or its own link where it has one.

    The one link of a whole engine would delay all of its workers, and what they say to each other, to a JobManager or
    to ZooKeeper not at all.
    """
    if (why_not := node.why_not_here()) is None:
        return {"type": "namespace", "target": {"name": node_name(engine)}}
    if len(link_names(engine)) > 1:
        return {}
    raise FaultRefused(
        f"--plan {plan} delays the packets of one worker of {engine}, and this host cannot ({why_not}); "
        f"a file for --faults may have net_delay on {link_names(engine)[0]}, which delays all that {engine} sends to "
        "the broker."
    )
