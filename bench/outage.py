"""A long outage of the broker of a live sidecar: what the sidecar confirms afterwards, and what the wait costs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from bench.measuring import Sampler
from testbed.broker import EmbeddedBroker
from testbed.demo.memory import memory_usage_of

MISSING_SECONDS: Final = 60
_WINDOW_SECONDS: Final = 60
_WAIT_SECONDS_MAX: Final = 300.0


def outage(config: Path, broker: EmbeddedBroker, seconds: float) -> dict[str, Any]:
    """Stop ``broker`` (SIGKILL) for ``seconds`` while the sidecar of ``config`` runs.

    Before, the sidecar has read two events of a window, a third event that closes it, and no result. Afterwards a
    result with one of the two is appended, so only the other one may be confirmed as missing. The topics are ``click``
    and ``output``. Raises SystemExit if the sidecar ends, or if a step takes longer than `_WAIT_SECONDS_MAX`.
    """
    state, log = config.parent / "state", config.parent / "log"
    timing = ["--set", f"timing.missing_after={MISSING_SECONDS}s"]
    command = [sys.executable, "-m", "validator.cli.main", "validate", str(config), *timing]
    _append(broker, "click", _click(1, 1), _click(2, 2), _click(3, _WINDOW_SECONDS + 1))
    with log.open("w") as file:
        sidecar = subprocess.Popen(command, stderr=file)
        try:
            with Sampler(sidecar.pid) as sampler:
                report = _until(sidecar, state, lambda report: report["cells"]["closed"] == 1)
                lines, before = _lines(log), memory_usage_of(sidecar.pid).bytes
                broker.kill()
                killed, used = time.monotonic(), sampler.cpu_seconds
                while time.monotonic() - killed < seconds:
                    time.sleep(min(10.0, seconds))
                    if sidecar.poll() is not None:
                        raise SystemExit(f"bench: the sidecar ended in the outage: {log.read_text()[-1000:]}")
                ready, during = _ready(state), memory_usage_of(sidecar.pid).bytes
                used, printed = sampler.cpu_seconds - used, _lines(log) - lines
                away = time.monotonic() - killed
                broker.restart()
                returned = time.monotonic()
                _append(broker, "output", _result(1))
                report = _until(sidecar, state, lambda report: report["contributions"]["processed"] == 1)
                first = time.monotonic() - returned
                early = report["violations"]["confirmed"]["missing"]
                report = _until(sidecar, state, lambda report: report["violations"]["confirmed"]["missing"] > 0)
                confirmed = time.monotonic() - returned
        finally:
            sidecar.terminate()
            status = sidecar.wait(60)
    return {
        "outage_seconds": round(away),
        "missing_after_seconds": MISSING_SECONDS,
        "readyz_in_the_outage": ready,
        "lines_printed_in_the_outage": printed,
        "cores_in_the_outage": round(used / away, 3),
        "pss_mib_before": before >> 20,
        "pss_mib_at_the_end_of_the_outage": during >> 20,
        "result_read_seconds_after_return": round(first, 1),
        "missing_confirmed_when_the_result_was_read": early,
        "loss_confirmed_seconds_after_return": round(confirmed, 1),
        "missing_confirmed": report["violations"]["confirmed"]["missing"],
        "missing_retracted": report["violations"]["retracted"]["missing"],
        "status": status,
    }


def _click(event_id: int, seconds: float) -> dict[str, object]:
    return {"id": event_id, "page": "a", "timestamp": _iso(seconds)}


def _result(event_id: int) -> dict[str, object]:
    """The result of the first window, without an event that it should contain."""
    return {"page": "a", "windowStart": _iso(0), "clickIds": [event_id], "updateIds": []}


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat(timespec="milliseconds")


def _append(broker: EmbeddedBroker, topic: str, *values: dict[str, object]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, json.dumps(value).encode(), partition=0)
    if producer.flush(60) > 0:
        raise SystemExit(f"bench: the broker did not take the records of {topic}")


def _until(sidecar: subprocess.Popen[bytes], state: Path, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + _WAIT_SECONDS_MAX
    while time.monotonic() < deadline:
        path = state / "report.json"
        if path.exists() and holds(report := json.loads(path.read_text())):
            found: dict[str, Any] = report
            return found
        if sidecar.poll() is not None:
            raise SystemExit("bench: the sidecar ended")
        time.sleep(0.1)
    raise SystemExit(f"bench: not within {_WAIT_SECONDS_MAX:g} s")


def _ready(state: Path) -> int:
    """The HTTP status of ``/readyz``."""
    url = json.loads((state / "endpoint.json").read_text())["url"] + "readyz"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            status: int = answer.status
            return status
    except urllib.error.HTTPError as error:
        return error.code


def _lines(log: Path) -> int:
    return len(log.read_text().splitlines())
