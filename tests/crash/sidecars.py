"""Sidecars as separate processes, which tests kill, on one small history with known defects."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from testbed.checkout import python_path, streamproof
from testbed.processes import OwnedProcess
from tests.crash.delta_files import rows_of
from validator.reconcile.judge import CONTRIBUTIONS, RESULTS

PROCESS_SECONDS_MAX: Final = 240.0
ORPHAN_SECONDS_MAX: Final = 5.0
JAVA: Final = "-XX:-UsePerfData -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Halves the time of a start, compared with the optimising compiler."""

_CONFIG: Final = """\
pipeline: {name}
guarantee: exactly_once
kafka: {{bootstrap_servers: "{servers}"}}
inputs: [{{topic: {name}-in, fields: {{id: id, key: page, event_time: timestamp}}}}]
outputs: [{{topic: {name}-out, fields: {{key: page, window_start: windowStart, ids: [clickIds]}}}}]
late: [{{topic: {name}-late, fields: {{id: clickId, key: page, event_time: clickTimestamp}}}}]
oracle: {{kind: tumbling_window, size: 10s}}
timing: {{idle_after: 1s, overdue_after: 2s, missing_after: 4s, tick: 300ms}}
limits: {{records_per_batch: 200}}
spark: {{options: {{spark.driver.memory: 1g}}}}
metrics: {{port: 0}}
state: {{path: ./unset}}
"""

Sample = tuple[str, tuple[tuple[str, str], ...]]
Cell = tuple[int, str]


@dataclass
class Scraper:
    """Reads /metrics of one sidecar as often as it can. Records counters that decrease in ``falls``."""

    highest: dict[Sample, float] = field(default_factory=dict)
    falls: list[str] = field(default_factory=list)
    scrapes: int = 0

    @contextmanager
    def watching(self, state: Path) -> Iterator[None]:
        """Scrape in a thread while the block runs."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.05):
                self.scrape(state)

        thread = threading.Thread(target=watch, name="scraper")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def scrape(self, state: Path) -> None:
        """Scrape once, if the sidecar has an endpoint."""
        try:
            url = json.loads((state / "endpoint.json").read_text())["url"]
            with urllib.request.urlopen(url + "metrics", timeout=5) as answer:
                text = answer.read().decode()
        except (OSError, urllib.error.URLError, ValueError):
            return
        self.scrapes += 1
        now: dict[Sample, float] = {}
        for family in text_string_to_metric_families(text):
            if family.type in ("counter", "histogram"):
                for name, labels, value, *_ in family.samples:
                    if not name.endswith("_created"):
                        now[name, tuple(sorted(labels.items()))] = value
        for sample, before in self.highest.items():
            if now.get(sample, 0.0) < before:
                self.falls.append(f"{sample} fell from {before} to {now.get(sample)}")
        self.highest.update(now)


@dataclass
class Sidecars:
    """Starts ``streamproof validate`` on states in ``folder``."""

    name: str
    servers: str
    folder: Path

    def __post_init__(self) -> None:
        self.config = self.folder / "pipeline.yaml"
        self.config.write_text(_CONFIG.format(name=self.name, servers=self.servers))
        (self.folder / "tmp").mkdir()

    def state(self, name: str) -> Path:
        """Return the folder of a state."""
        return self.folder / name

    def start(
        self, state: str, *arguments: str, failpoint: str | None = None, inside: Sequence[str | Path] = ()
    ) -> OwnedProcess:
        """Start one sidecar; its output goes to ``<state>.log``. ``inside``: a command that runs the sidecar's
        command."""
        environment = {**python_path(), "TMPDIR": str(self.folder / "tmp")}
        environment["JAVA_TOOL_OPTIONS"] = f"{JAVA} -Djava.io.tmpdir={self.folder / 'tmp'}"
        if failpoint is not None:
            environment["STREAMPROOF_FAILPOINT"] = failpoint
        return OwnedProcess(
            [*inside, *streamproof("validate", self.config, *arguments, "--set", f"state.path={self.state(state)}")],
            log=self.folder / f"{state}.log",
            name=f"sidecar on {state}",
            environment=environment,
            folder=self.folder,
        )

    def once(self, state: str, *arguments: str, failpoint: str | None = None, inside: Sequence[str | Path] = ()) -> int:
        """Run ``validate --once`` to its end, which is a kill if a failpoint is set. Assert that no process is left."""
        process = self.start(state, "--once", *arguments, failpoint=failpoint, inside=inside)
        try:
            status = process.wait(PROCESS_SECONDS_MAX)
            await_no_orphan(process.pid)
        finally:
            process.kill()
        return status

    def report(self, state: str) -> dict[str, Any]:
        """Return the report of a state."""
        loaded = json.loads((self.state(state) / "report.json").read_text())
        assert isinstance(loaded, dict)
        return loaded

    def verdicts(self, state: str) -> dict[Cell, dict[str, int]]:
        """Return the newest verdict of each cell: counts by class."""
        names = [*CONTRIBUTIONS, *RESULTS]
        rows = rows_of(self.state(state) / "verdicts", ["batch", "window_start_us", "key", *names])
        newest: dict[Cell, dict[str, int]] = {}
        for row in sorted(rows, key=lambda row: row["batch"]):
            newest[row["window_start_us"], row["key"]] = {name: row[name] for name in names}
        return newest

    def violations(self, state: str) -> dict[tuple[Cell, str], tuple[int, tuple[str, ...]]]:
        """Return the open violations: number of contributions, and ids."""
        columns = ["batch", "class", "window_start_us", "key", "state", "count", "ids"]
        newest: dict[tuple[Cell, str], tuple[int, tuple[str, ...]]] = {}
        rows = rows_of(self.state(state) / "violations", columns)
        for row in sorted(rows, key=lambda row: row["batch"]):
            newest[(row["window_start_us"], row["key"]), row["class"]] = row["count"], tuple(sorted(row["ids"]))
        return {which: found for which, found in newest.items() if found[0]}

    def facts(self, state: str) -> Counter[tuple[str, str, int, int, str, int]]:
        """Return how often each (side, topic, partition, offset, cell's key, id) is in the facts. All must be 1."""
        found: Counter[tuple[str, str, int, int, str, int]] = Counter()
        columns = ["kind", "side", "topic", "partition", "key", "ids"]
        for row in rows_of(self.state(state) / "facts", columns):
            for entry in row["ids"] or ():
                place = row["side"], row["topic"], row["partition"]
                found[*place, entry["offset"], row["key"], entry["id"]] += 1
        return found


def processes_of(group: int) -> dict[int, str]:
    """Return process id -> command name of the live members of a process group."""
    listed = subprocess.run(["ps", "-eo", "pid=,pgid=,stat=,comm="], check=True, capture_output=True, text=True)
    found = {}
    for line in listed.stdout.splitlines():
        pid, pgid, status, command = line.split(None, 3)
        if int(pgid) == group and not status.startswith("Z"):
            found[int(pid)] = command
    return found


def jvm_of(group: int) -> int:
    """Return the process id of a sidecar's JVM."""
    return next(pid for pid, command in processes_of(group).items() if command == "java")


def await_no_orphan(group: int) -> None:
    """Wait until the group has no process. The JVM outlives its driver by a moment at most."""
    until(lambda: not processes_of(group), ORPHAN_SECONDS_MAX, lambda: f"orphans: {processes_of(group)}")


def until(holds: Callable[[], bool], seconds: float, complaint: Callable[[], str]) -> None:
    """Wait for a condition; fail with ``complaint`` if it does not hold in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, complaint()
        time.sleep(0.02)


def kill_group(process: OwnedProcess) -> None:
    """Kill driver and JVM at once."""
    os.killpg(process.pid, signal.SIGKILL)
