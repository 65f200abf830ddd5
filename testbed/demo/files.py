"""The demo's configurations of load, engine and sidecar, for a plan and a folder.

Event time follows the wall clock, in windows of a few seconds, so that a verdict comes soon.
"""

from __future__ import annotations

import math
import socket
from pathlib import Path
from typing import Final

from testbed import run_files
from testbed.demo import measures
from testbed.demo.options import DemoPlan
from testbed.demo.stages import TRANSACTION_SECONDS
from testbed.demo.targets import WORKERS
from testbed.engines.real import LOCAL, RealEngineSettings, Timeouts
from testbed.engines.registry import REGISTRY
from testbed.engines.settings import EngineSettings
from testbed.ports import free_port
from testbed.processes import OwnedProcess
from testbed.run_files import SidecarFile, write_yaml

EFFECTIVE_FILE: Final = "effective.json"
"""Name of the file with a real engine's effective guarantee, for the sidecar."""
PIPELINE: Final = "demo"
GROUP: Final = "demo-engine"
EVENTS_PER_SECOND: Final = 3_000
OVERDUE_AFTER_SECONDS: Final = 3
MISSING_AFTER_SECONDS: Final = 10
REAL_MISSING_AFTER_SECONDS: Final = 45
"""A real engine needs 5 to 20 s after a kill until it produces results. Meanwhile results are overdue, not lost."""
RESULT_BEFORE_COMMIT: Final = ("flink", "kafka_streams")
"""Real engines that produce a result when its window closes, independently of their commits."""
FIRST_RESULT_SECONDS: Final = 20.0
"""Upper limit for the first result of a real engine under load. The demo's clock starts with the first result."""
SCENARIO_COMMIT_SECONDS: Final = 5.0
"""Commit interval in a scenario of an at-least-once engine: longer than two windows, so that most kills repeat
results."""
HEARTBEATS: Final = 3
"""Number of heartbeats within a plan's timeout, as PGVal has them: one per second, with a timeout of 3 s."""
BROKER_SETTINGS: Final = {"group.min.session.timeout.ms": "1000"}
"""Without this setting, the demo's broker would refuse PGVal's session timeout."""
PROMETHEUS_PORT: Final = 9090
_LOAD_SECONDS_MAX: Final = 24 * 3600
"""Upper limit of a load in seconds; the demo normally ends the load earlier."""


def topics(plan: DemoPlan) -> dict[str, int]:
    """Return topic -> partitions. A shared topic has at least one partition per worker."""
    partitions = plan.topics.partitions
    return {name: max(count, _workers(plan)) if count > 1 else count for name, count in partitions.items()}


def _workers(plan: DemoPlan) -> int:
    return WORKERS if plan.scenario is None else plan.scenario.workers


def window_seconds(plan: DemoPlan) -> int:
    """Return the length of the event-time windows."""
    return measures.window_seconds(plan.seconds, is_scenario=plan.scenario is not None)


def commit_seconds(plan: DemoPlan) -> float:
    """Return the interval between the engine's commits.

    At least once causes visible violations only if results were produced since the last commit. Rare commits, and a
    kill right after a result, ensure that.
    """
    if plan.guarantee != "at_least_once":
        return 0.5
    return max(4.0, 0.4 * plan.seconds) if plan.scenario is None else SCENARIO_COMMIT_SECONDS


def engine_settings(plan: DemoPlan, bootstrap_servers: str, folder: Path) -> EngineSettings:
    """Return the settings of the reference engine or the mutant."""
    return plan.topics.engine(
        bootstrap_servers,
        window_seconds(plan) * 1000,
        group=GROUP,
        guarantee=plan.guarantee,
        # The results of an earlier stage come once in a window.
        idle_after_seconds=2.0 + (window_seconds(plan) if plan.topics.workload.follows else 0),
        commit_interval_seconds=commit_seconds(plan),
        transaction_timeout_seconds=TRANSACTION_SECONDS,
        session_timeout_seconds=_timeout_seconds(plan) or LOCAL.session_timeout_seconds,
        mutations=plan.mutations,
        mutation_seed=plan.seed,
        truth=folder / "truth" if plan.engine == "mutant" else None,
    )


def real_timeouts(plan: DemoPlan) -> Timeouts:
    """Return the local timeouts, changed for the plan. With at least once, an engine that produces results before
    commits gets a long commit interval: a single fault comes before the first commit, so all earlier results are
    repeated."""
    changed: dict[str, float] = {}
    if plan.engine in RESULT_BEFORE_COMMIT and plan.guarantee == "at_least_once":
        until_fault = plan.seconds + FIRST_RESULT_SECONDS
        changed["commit_interval_seconds"] = until_fault if plan.scenario is None else SCENARIO_COMMIT_SECONDS
    if (timeout := _timeout_seconds(plan)) is not None:
        changed |= {"session_timeout_seconds": timeout, "heartbeat_interval_seconds": timeout / HEARTBEATS}
    return LOCAL.model_copy(update=changed)


def _timeout_seconds(plan: DemoPlan) -> float | None:
    return None if plan.scenario is None else plan.scenario.timeout_seconds


def real_settings(plan: DemoPlan, bootstrap_servers: str) -> RealEngineSettings:
    """Return the settings of a real engine."""
    return RealEngineSettings(
        bootstrap_servers=bootstrap_servers,
        workload=plan.topics.workload.kind,
        parameters=plan.topics.workload.parameters,
        input=plan.topics.inputs[0],
        update_input=plan.topics.inputs[-1],
        output=plan.topics.output,
        late=plan.topics.late[0],
        late_updates=plan.topics.late[-1],
        group=GROUP,
        guarantee=plan.guarantee,
        parallelism=_workers(plan),
        window_ms=window_seconds(plan) * 1000,
        max_disorder_ms=REGISTRY[plan.engine].slack_ms,
        timeouts=real_timeouts(plan),
    )


def missing_after_seconds(plan: DemoPlan) -> int:
    """Return the time that the sidecar waits for a result before it suspects a loss."""
    # If the broker dies during a transaction, the worker hangs until the transaction times out, then restarts.
    is_slow = plan.is_real or (plan.scenario is not None and "broker" in plan.scenario.kinds)
    patience = REAL_MISSING_AFTER_SECONDS if is_slow else MISSING_AFTER_SECONDS
    return patience if plan.scenario is None else patience + math.ceil(plan.scenario.longest_seconds)


def write_load(plan: DemoPlan, bootstrap_servers: str, folder: Path) -> Path:
    """Write the generator's configuration file and return it. Its journal and ``summary.json`` go to
    ``folder/journal``."""
    return run_files.write_load(
        bootstrap_servers,
        folder,
        topics=plan.topics,
        window_ms=window_seconds(plan) * 1000,
        per_second=EVENTS_PER_SECOND,
        seconds=_LOAD_SECONDS_MAX if plan.ends_load else plan.seconds,
        seed=plan.seed,
    )


def write_sidecar(bootstrap_servers: str, plan: DemoPlan, folder: Path) -> Path:
    """Write the sidecar's configuration file and return it: as a user would write it for this pipeline, with short
    times."""
    return SidecarFile(
        pipeline=PIPELINE,
        guarantee="exactly_once",
        engine=plan.engine,
        topics=plan.topics,
        window_ms=window_seconds(plan) * 1000,
        overdue_after_ms=OVERDUE_AFTER_SECONDS * 1000,
        missing_after_ms=missing_after_seconds(plan) * 1000,
        effective=EFFECTIVE_FILE if plan.is_real else None,
        measures=measures.measures(_control_seconds(plan), window_seconds(plan)),
    ).write(bootstrap_servers, folder)


def _control_seconds(plan: DemoPlan) -> float:
    if plan.scenario is not None:
        return plan.scenario.control_seconds
    return measures.control_seconds(plan.seconds, is_scenario=False)


def start_prometheus(url: str, folder: Path) -> tuple[OwnedProcess, str]:
    """Start a Prometheus that scrapes the sidecar at ``url`` every second; return it and its URL. It uses port 9090,
    or another port if that is taken, for example by Debian's Prometheus service."""
    target = url.removeprefix("http://").rstrip("/")
    scrape = {"job_name": "streamproof", "static_configs": [{"targets": [target]}]}
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape]}
    address = f"127.0.0.1:{PROMETHEUS_PORT if _is_free(PROMETHEUS_PORT) else free_port()}"
    process = OwnedProcess(
        ["prometheus", f"--config.file={write_yaml(folder / 'prometheus.yaml', config)}",
         f"--storage.tsdb.path={folder / 'prometheus'}", f"--web.listen-address={address}"],
        log=folder / "prometheus.log",
    )  # fmt: skip
    return process, f"http://{address}/"


def _is_free(port: int) -> bool:
    with socket.socket() as asking:
        asking.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # connections of an earlier demo do not block the port
        try:
            asking.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
