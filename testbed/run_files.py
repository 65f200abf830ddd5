"""The configuration files of one run: what the generator sends, and what the sidecar beside it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from testbed.engines.catalogue import CATALOGUE
from testbed.engines.settings import Guarantee

PAGES: Final = 6
"""Keys of the load, as in PGVal."""
_SHORT_RUN: Final = {
    "spark.driver.memory": "1g",
    # A run of a minute ends before the second compiler pays: the first alone takes half the time to a verdict. It needs
    # more room for its code than it would take by itself.
    "spark.driver.extraJavaOptions": ("-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -Xss4m"),
}


@dataclass(frozen=True)
class Topics:
    """The names of a run's topics."""

    click: str = "click"
    output: str = "output"
    late: str = "lateOutput"
    faults: str = "faults"

    @property
    def partitions(self) -> dict[str, int]:
        """Name -> partitions."""
        return {self.click: 2, self.output: 2, self.late: 1, self.faults: 1}


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
    measures: Mapping[str, object] = field(default_factory=dict)
    """The section of that name."""

    def write(self, bootstrap_servers: str, folder: Path) -> Path:
        """``pipeline.yaml`` in ``folder``: what a user would write for this pipeline, with short times."""
        entry = CATALOGUE.get(self.engine)
        drops_late = entry is not None and entry.drops_late
        topics = self.topics
        fields = {"key": "page", "window_start": "windowStart", "ids": ["clickIds", "updateIds"]}
        late = {
            "topic": topics.late,
            "fields": {"id": "clickId", "key": "page", "event_time": "clickTimestamp"},
        }
        return write_yaml(
            folder / "pipeline.yaml",
            {
                "pipeline": self.pipeline,
                "guarantee": self.guarantee,
                "kafka": {"bootstrap_servers": bootstrap_servers},
                "inputs": [{"topic": topics.click, "fields": {"id": "id", "key": "page", "event_time": "timestamp"}}],
                "outputs": [{"topic": topics.output, "fields": fields}],
                **({} if drops_late else {"late": [late]}),
                "faults": {"topic": topics.faults},
                "oracle": {"kind": "tumbling_window", "size": f"{self.window_ms}ms"},
                "timing": {
                    "idle_after": "2s",
                    "max_disorder": f"{entry.slack_ms if entry else 0}ms",
                    "late_policy": "drop" if drops_late else "report",
                    "overdue_after": f"{self.overdue_after_ms}ms",
                    "missing_after": f"{self.missing_after_ms}ms",
                },
                **({"measures": dict(self.measures)} if self.measures else {}),
                "state": {"path": "./state"},
                "spark": {"options": {**_SHORT_RUN, "spark.local.dir": str(folder / "tmp")}},
                "metrics": {"port": 0},
            },
        )


def write_load(
    bootstrap_servers: str, folder: Path, *, topic: str, window_ms: int, per_second: int, seconds: float, seed: int
) -> Path:
    """The generator's configuration file; its journal and ``summary.json`` go to ``folder/journal``."""
    return write_yaml(
        folder / "load.yaml",
        {
            "kafka": {"bootstrap_servers": bootstrap_servers},
            "topic": topic,
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
