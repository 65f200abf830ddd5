"""A fault configuration with six workers on three hosts, two links and two topics, and the timelines of its seeds."""

from __future__ import annotations

from itertools import count
from typing import Any

from faults.config import FaultConfig, parse
from faults.fault import Timeline
from faults.schedule import timeline


def worker(number: int, **more: Any) -> dict[str, Any]:
    return {
        "type": "process",
        "pid_file": f"{number}.pid",
        "start": ["sleep", "9"],
        "host": f"node-{number // 2}",
        "labels": {"role": "worker"},
        **more,
    }


WORKERS = {f"w{number}": worker(number, leader=number == 3, input=number == 0) for number in range(6)}
LINKS = {
    f"link{number}": {"type": "link", "listen": f"127.0.0.1:{19092 + number}", "upstream": "127.0.0.1:9092"}
    for number in range(2)
} | {
    f"topic{number}": {"type": "topic", "bootstrap_servers": "127.0.0.1:9092", "topic": f"in{number}"}
    for number in range(2)
}


def configured(schedule: dict[str, Any] | None = None, **more: Any) -> FaultConfig:
    return parse({"targets": WORKERS | LINKS, "schedule": schedule} | more)


def planned(config: FaultConfig, seed: int = 1) -> Timeline:
    numbers = count()
    return timeline(config, seed, lambda: str(next(numbers)))


def of_plan(name: str, **more: Any) -> Timeline:
    return planned(configured(plan={"name": name, **more}))
