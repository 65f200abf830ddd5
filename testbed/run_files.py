"""The configuration files of one run: what the generator sends, and what the sidecar beside it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from testbed.engines.catalogue import CATALOGUE
from testbed.engines.settings import Guarantee, Workload

PAGES: Final = 6
"""Keys of the load, as in PGVal."""
_SHORT_RUN: Final = {
    "spark.driver.memory": "1g",
    # A run of a minute ends before the second compiler pays: the first alone takes half the time to a verdict. It needs
    # more room for its code than it would take by itself.
    "spark.driver.extraJavaOptions": ("-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -Xss4m"),
}


UPDATE_PERCENT: Final = 10.0
"""Updates among the events of MST, at the most that PGVal's scripts use: small windows must have some."""


_UPDATES: Final[dict[str, object]] = {"workload": "mst", "update_percent": UPDATE_PERCENT}


@dataclass(frozen=True)
class Topics:
    """The names of a run's topics."""

    click: str = "click"
    output: str = "output"
    late: str = "lateOutput"
    faults: str = "faults"
    update: str = "update"
    late_updates: str = "lateUpdates"

    def inputs(self, workload: Workload) -> tuple[str, ...]:
        """The topics that the load goes to."""
        return (self.click,) if workload == "sst" else (self.click, self.update)

    def partitions(self, workload: Workload) -> dict[str, int]:
        """Name -> partitions of the topics that ``workload`` needs."""
        both = {self.click: 2, self.output: 2, self.late: 1, self.faults: 1}
        return both if workload == "sst" else {**both, self.update: 2, self.late_updates: 1}


@dataclass(frozen=True)
class SidecarFile:
    """What differs between the sidecars of two runs. Durations are milliseconds."""

    pipeline: str
    guarantee: Guarantee
    engine: str
    window_ms: int
    overdue_after_ms: int
    missing_after_ms: int
    topics: Topics = field(default_factory=Topics)
    workload: Workload = "sst"
    measures: Mapping[str, object] = field(default_factory=dict)
    """The section of that name."""
    trigger_ms: int = 500
    effective: str | None = None
    """The file beside it where the guarantee that its engine was found to have is told."""

    def write(self, bootstrap_servers: str, folder: Path) -> Path:
        """``pipeline.yaml`` in ``folder``: what a user would write for this pipeline, with short times."""
        entry = CATALOGUE.get(self.engine)
        drops_late = entry is not None and entry.drops_late
        inputs, ids, late, oracle = self._joined() if self.workload == "mst" else self._counted()
        fields = {"key": "page", "window_start": "windowStart", "ids": ids}
        return write_yaml(
            folder / "pipeline.yaml",
            {
                "pipeline": self.pipeline,
                "guarantee": self.guarantee,
                "kafka": {"bootstrap_servers": bootstrap_servers},
                "inputs": inputs,
                "outputs": [{"topic": self.topics.output, "fields": fields}],
                **({} if drops_late else {"late": late}),
                "faults": {"topic": self.topics.faults},
                **({"engine": {"effective": f"./{self.effective}"}} if self.effective else {}),
                "oracle": {**oracle, "size": f"{self.window_ms}ms"},
                "timing": {
                    "idle_after": "2s",
                    "max_disorder": f"{entry.slack_ms if entry else 0}ms",
                    "late_policy": "drop" if drops_late else "report",
                    "overdue_after": f"{self.overdue_after_ms}ms",
                    "missing_after": f"{self.missing_after_ms}ms",
                },
                **({"measures": dict(self.measures)} if self.measures else {}),
                "state": {"path": "./state"},
                "spark": {
                    "trigger": f"{self.trigger_ms}ms",
                    "options": {**_SHORT_RUN, "spark.local.dir": str(folder / "tmp")},
                },
                "metrics": {"port": 0},
            },
        )

    def _counted(self) -> _Sides:
        """SST: clicks by page and window."""
        late = {"id": "clickId", "key": "page", "event_time": "clickTimestamp"}
        return _Sides(
            [{"topic": self.topics.click, "fields": _EVENT}],
            ["clickIds", "updateIds"],
            [{"topic": self.topics.late, "fields": late}],
            {"kind": "tumbling_window"},
        )

    def _joined(self) -> _Sides:
        """MST: clicks and updates of a page and window, whose ids count apart."""
        click, update = self.topics.click, self.topics.update
        late = {"id": "clickId", "key": "page", "event_time": "clickTimestamp"}
        late_update = {"id": "updateId", "key": "page", "event_time": "updateTimestamp"}
        return _Sides(
            [{"topic": click, "fields": _EVENT}, {"topic": update, "fields": _EVENT}],
            [{"path": "clickIds", "input": click}, {"path": "updateIds", "input": update}],
            [
                {"topic": self.topics.late, "input": click, "fields": late},
                {"topic": self.topics.late_updates, "input": update, "fields": late_update},
            ],
            {"kind": "windowed_join", "join": "inner", "left": click, "right": update},
        )


class _Sides(NamedTuple):
    """The parts of a sidecar's configuration in which workloads differ."""

    inputs: list[dict[str, object]]
    ids: list[object]
    late: list[dict[str, object]]
    oracle: dict[str, object]


_EVENT: Final = {"id": "id", "key": "page", "event_time": "timestamp"}


def write_load(
    bootstrap_servers: str,
    folder: Path,
    *,
    topics: Topics,
    window_ms: int,
    per_second: int,
    seconds: float,
    seed: int,
    workload: Workload = "sst",
) -> Path:
    """The generator's configuration file; its journal and ``summary.json`` go to ``folder/journal``."""
    return write_yaml(
        folder / "load.yaml",
        {
            "kafka": {"bootstrap_servers": bootstrap_servers},
            "topic": topics.click,
            **({} if workload == "sst" else _UPDATES | {"update_topic": topics.update}),
            "window": f"{window_ms}ms",
            "keys": {"pages": PAGES},
            "events_per_window": per_second * window_ms // (PAGES * 1000),
            "start": "now",
            "rate": {"shape": "event_time", "speed": 1},
            "limit": {"duration": f"{seconds:g}s"},
            "flush_windows": True,
            "delivery": {"flush_deadline": "10s"},
            "journal": "./journal",
            "seed": seed,
        },
    )


def write_yaml(path: Path, content: Mapping[str, object]) -> Path:
    """``content`` in a file; its path."""
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False), encoding="utf-8")
    return path
