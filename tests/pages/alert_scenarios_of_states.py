"""Alerts when a sidecar continues with a new state, whose counters start at 0."""

from __future__ import annotations

from tests.pages.alert_scenarios import PIPELINE, Quiet, Scenario
from tests.pages.alert_scenarios_pipeline import EXACTLY_ONCE, EXPECTED, MISSING, PLANNED, RETRACTED

NEW_STATE_LIVES = (
    Scenario(
        "StreamproofErrorBudgetBurn",
        # After six hours of an old state with 30,000 expected by a plan, a new state begins: of its events, 1 % is lost
        # as the plan expects, and another 2 % is lost.
        {
            EXPECTED: "0+1000x360 0+1000x130",
            MISSING: "30000x360 30+30x79 2400x50",
            PLANNED: "30000x360 10+10x79 800x50",
            RETRACTED: "0x491",
            EXACTLY_ONCE: "1x491",
        },
        {**PIPELINE, "window": "1h", "speed": "fast"},
        "critical",
        silent="365m",
        fires=("430m", "439m"),
        resolved="460m",
        values=("0.02", "0.02"),
    ),
)

NEW_STATE_QUIET = (
    Quiet(
        "a new state, where the plan of a fault expected all that the old one had",
        "StreamproofErrorBudgetBurn",
        {
            EXPECTED: "0+1000x60 _x2 0+1000x120",
            MISSING: "30000x60 _x2 0x120",
            PLANNED: "30000x60 _x2 0x120",
            RETRACTED: "0x60 _x2 0x120",
            EXACTLY_ONCE: "1x60 _x2 1x120",
        },
        ("64m", "66m", "70m", "90m", "120m", "180m"),
    ),
    Quiet(
        "a new state, with all that both had expected by the plan of a fault",
        "StreamproofErrorBudgetBurn",
        {
            EXPECTED: "0+1000x60 0+1000x120",
            MISSING: "30000x50 30000+20x9 20+20x59 1200x60",
            PLANNED: "30000x50 30000+20x9 20+20x59 1200x60",
            RETRACTED: "0x60 0x120",
            EXACTLY_ONCE: "1x181",
        },
        ("55m", "63m", "66m", "100m", "120m", "180m"),
    ),
)
