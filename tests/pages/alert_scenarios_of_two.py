"""Alerts when two sidecars use the same pipeline name."""

from __future__ import annotations

from tests.pages.alert_scenarios import PIPELINE, Quiet, Scenario
from tests.pages.alert_scenarios_sidecar import ALIVE

EU, US = (f'{ALIVE[:-1]},cluster="{name}"}}' for name in ("eu", "us"))

TWO_LIVES = (
    Scenario(
        "StreamproofSidecarTwice",
        {EU: "1x60", US: "_x5 1x24 stale"},
        PIPELINE,
        "warning",
        silent="14m",
        fires=("16m", "29m"),
        resolved="31m",
        values=("2", "2"),
    ),
)

TWO_QUIET = (
    Quiet(
        "a sidecar that is seen beside the one that it replaces for a minute, and every twenty",
        "StreamproofSidecarTwice",
        {f'{ALIVE[:-1]},instance="{n}"}}': f"_x{20 * n} 1x21 stale" if n else "1x21 stale" for n in range(3)},
        ("21m", "31m", "35m", "41m", "55m"),
    ),
    Quiet(
        "two pipelines, each with a sidecar of its own",
        "StreamproofSidecarTwice",
        {ALIVE: "1x30", ALIVE.replace("clickstream", "other"): "1x30"},
        ("15m", "29m"),
    ),
)
