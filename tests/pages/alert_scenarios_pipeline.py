"""The purpose of each alert on a pipeline, as series: broken guarantees, owed results, faults that are not healed."""

from __future__ import annotations

from tests.pages.alert_scenarios import PIPELINE, Quiet, Scenario

EXACTLY_ONCE = 'streamproof_guarantee_declared{pipeline="clickstream",guarantee="exactly_once"}'
AT_LEAST_ONCE = 'streamproof_guarantee_declared{pipeline="clickstream",guarantee="at_least_once"}'
EXPECTED = 'streamproof_events_total{pipeline="clickstream",class="expected"}'
MISSING = 'streamproof_violations_confirmed_total{pipeline="clickstream",class="missing",phase="control"}'
PLANNED = 'streamproof_violations_expected{pipeline="clickstream",class="missing"}'
RETRACTED = 'streamproof_violations_retracted_total{pipeline="clickstream",class="missing"}'
UNSURE = 'streamproof_guarantee_status{{pipeline="clickstream",guarantee="{}",over="1h",status="unknown"}}'

LIVES = (
    Scenario(
        "StreamproofGuaranteeViolated",
        {
            'streamproof_violations_open{pipeline="clickstream",class="duplicate"}': "0x5 3x4 1x6 0x20",
            EXACTLY_ONCE: "1x40",
        },
        {**PIPELINE, "class": "duplicate"},
        "critical",
        silent="5m",
        fires=("7m", "16m", "19m"),  # acknowledged at 17m; the alert is kept for 5 minutes
        resolved="25m",
        values=("3", "1", "1"),
    ),
    Scenario(
        "StreamproofGuaranteeViolated",
        # A fault whose plan expects 30 duplicates does not cover 2 later ones, or another class.
        {
            'streamproof_violations_open{pipeline="clickstream",class="duplicate"}': "0x5 30x4 32x6 30x20",
            'streamproof_violations_unexpected{pipeline="clickstream",class="duplicate"}': "0x10 2x5 0x20",
            EXACTLY_ONCE: "1x40",
        },
        {**PIPELINE, "class": "duplicate"},
        "critical",
        silent="8m",
        fires=("12m", "19m"),
        resolved="25m",
        values=("2", "2"),
    ),
    Scenario(
        "StreamproofErrorBudgetBurn",
        # As below, but another 2 % is lost as a plan expects.
        {
            EXPECTED: "0+1000x500",
            MISSING: "0x360 40+40x79 3200x200",
            PLANNED: "0x360 20+20x79 1600x200",
            RETRACTED: "0x500",
            EXACTLY_ONCE: "1x500",
        },
        {**PIPELINE, "window": "1h", "speed": "fast"},
        "critical",
        silent="390m",
        fires=("430m", "439m"),
        resolved="460m",
        values=("0.02", "0.02"),
    ),
    Scenario(
        "StreamproofErrorBudgetBurn",
        # After six clean hours, 2 % is lost for 80 minutes. The ratio of 1 h exceeds 14.4 x 0.1 % after 44 bad minutes.
        {EXPECTED: "0+1000x500", MISSING: "0x360 20+20x79 1600x200", RETRACTED: "0x500", EXACTLY_ONCE: "1x500"},
        {**PIPELINE, "window": "1h", "speed": "fast"},
        "critical",
        silent="390m",
        fires=("430m", "439m"),
        resolved="460m",
        values=("0.02", "0.02"),
    ),
    Scenario(
        "StreamproofErrorBudgetBurn",
        # After six clean hours, 1 % is lost for seven. The ratio of 6 h exceeds 6 x 0.1 % after 216 bad minutes.
        {EXPECTED: "0+1000x1000", MISSING: "0x360 10+10x419 4200x600", RETRACTED: "0x1000", EXACTLY_ONCE: "1x1000"},
        {**PIPELINE, "window": "6h", "speed": "slow"},
        "warning",
        silent="500m",
        fires=("740m", "770m"),
        resolved="840m",
        values=("0.01", "0.01"),
    ),
    Scenario(
        "StreamproofOverdueGrowing",
        {'streamproof_outstanding_events{pipeline="clickstream",state="overdue"}': "0x10 10+10x19 200x40"},
        PIPELINE,
        "warning",
        silent="10m",
        fires=("12m", "20m", "40m"),  # it stops growing at 30m; kept for 2 + 10 minutes
        resolved="45m",
        values=("20", "100", "200"),
    ),
    Scenario(
        "StreamproofInputUnconsumed",
        # The engine dies, and is restarted 15 minutes later.
        {'streamproof_unconsumed_overdue_events{pipeline="clickstream"}': "0x5 100+100x14 1400-700x2 0x20"},
        PIPELINE,
        "critical",
        silent="9m",
        fires=("12m", "20m"),
        resolved="32m",
        values=("700", "1500"),
    ),
    Scenario(
        "StreamproofVerdictUnknown",
        {
            UNSURE.format("exactly_once"): ("0x5 1x60 0x60"),
            EXACTLY_ONCE: "1x150",
        },
        {**PIPELINE, "guarantee": "exactly_once"},
        "warning",
        silent="30m",
        fires=("40m", "70m"),
        resolved="80m",
    ),
    Scenario(
        "StreamproofFaultNotHealed",
        {
            'streamproof_fault_active{pipeline="clickstream",fault="kill-one",kind="process_kill",target="tm-1"}': (
                "0x5 1x60 0x20"
            )
        },
        {**PIPELINE, "fault": "kill-one", "kind": "process_kill", "target": "tm-1"},
        "warning",
        silent="30m",
        fires=("40m",),
        resolved="70m",
    ),
    Scenario(
        "StreamproofFaultNotHealed",
        # Its plan expects duplicates. After a day they are no longer expected: only the alert without `effect` fires.
        {
            'streamproof_fault_active{pipeline="clickstream",fault="kill-one",kind="process_kill",target="tm-1"}': (
                "0x5 1x1600"
            ),
            'streamproof_fault_expects{pipeline="clickstream",class="duplicate"}': "0x5 1x1440 0x160",
            'streamproof_fault_expects{pipeline="clickstream",class="missing"}': "0x1606",
        },
        {**PIPELINE, "fault": "kill-one", "kind": "process_kill", "target": "tm-1", "effect": "mute"},
        "critical",
        silent="30m",
        fires=("40m", "1440m"),
        resolved="1460m",
        beside="warning",
    ),
    Scenario(
        "StreamproofFaultNotHealed",
        # Mutes of other faults start and end, each shorter than the alert's `for`.
        {
            'streamproof_fault_active{pipeline="clickstream",fault="kill-one",kind="process_kill",target="tm-1"}': (
                "0x5 1x240 0x20"
            ),
            'streamproof_fault_expects{pipeline="clickstream",class="duplicate"}': "0x5 " + "1x10 0x10 " * 11,
        },
        {**PIPELINE, "fault": "kill-one", "kind": "process_kill", "target": "tm-1"},
        "warning",
        silent="30m",
        fires=("40m", "235m"),
        resolved="260m",
    ),
)

QUIET = (
    Quiet(
        "the plan of a fault expects these duplicates",
        "StreamproofGuaranteeViolated",
        {
            'streamproof_violations_open{pipeline="clickstream",class="duplicate"}': "0x5 30x20",
            'streamproof_violations_unexpected{pipeline="clickstream",class="duplicate"}': "0x25",
            EXACTLY_ONCE: "1x25",
        },
        ("7m", "20m"),
    ),
    Quiet(
        "the plan of a fault expects all that is lost",
        "StreamproofErrorBudgetBurn",
        {
            EXPECTED: "0+1000x500",
            MISSING: "0x360 20+20x59 1200x80",
            PLANNED: "0x360 20+20x59 1200x80",
            RETRACTED: "0x500",
            EXACTLY_ONCE: "1x500",
        },
        ("410m", "419m", "440m", "499m"),
    ),
    Quiet(
        "what a plan expects is retracted, with the rest of what was confirmed",
        "StreamproofErrorBudgetBurn",
        {
            EXPECTED: "0+1000x500",
            MISSING: "0x360 1200x140",
            PLANNED: "0x360 1200x30 0x110",
            RETRACTED: "0x390 1200x110",
            EXACTLY_ONCE: "1x500",
        },
        ("362m", "380m", "391m", "420m", "460m"),
    ),
    Quiet(
        "the plan of a fault expects answers to be late",
        "StreamproofOverdueGrowing",
        {
            'streamproof_outstanding_events{pipeline="clickstream",state="overdue"}': "0x10 10+10x19 200x40",
            'streamproof_fault_expects{pipeline="clickstream",class="overdue"}': "0x10 1x60",
        },
        ("20m", "45m"),
    ),
    Quiet(
        "the plan of a fault expects the engine to stand still",
        "StreamproofInputUnconsumed",
        {
            'streamproof_unconsumed_overdue_events{pipeline="clickstream"}': "0x10 100x40",
            'streamproof_fault_expects{pipeline="clickstream",class="overdue"}': "0x10 1x60",
        },
        ("20m", "45m"),
    ),
    Quiet(
        "an engine that catches up within five minutes",
        "StreamproofInputUnconsumed",
        {'streamproof_unconsumed_overdue_events{pipeline="clickstream"}': "0x10 100x3 0x40"},
        ("12m", "20m"),
    ),
    Quiet(
        "a duplicate breaks nothing that at-least-once claims",
        "StreamproofGuaranteeViolated",
        {
            'streamproof_violations_open{pipeline="clickstream",class="duplicate"}': "3x20",
            AT_LEAST_ONCE: "1x20",
            EXACTLY_ONCE: "0x20",
        },
        ("1m", "10m"),
    ),
    Quiet(
        "a rate within the objective burns nothing that alerts",
        "StreamproofErrorBudgetBurn",
        {EXPECTED: "0+10000x400", MISSING: "0+10x400", RETRACTED: "0x400", EXACTLY_ONCE: "1x400"},
        ("70m", "399m"),
    ),
    Quiet(
        "an idle pipeline has no ratio",
        "StreamproofErrorBudgetBurn",
        {EXPECTED: "1000x400", MISSING: "7x400", RETRACTED: "0x400", EXACTLY_ONCE: "1x400"},
        ("70m", "399m"),
    ),
    Quiet(
        "what was retracted burns nothing",
        "StreamproofErrorBudgetBurn",
        {EXPECTED: "0+1000x400", MISSING: "0+50x400", RETRACTED: "0+50x400", EXACTLY_ONCE: "1x400"},
        ("70m", "399m"),
    ),
    Quiet(
        "growth that is scraped every three minutes, as docs/alerts.md says of it",
        "StreamproofOverdueGrowing",
        {'streamproof_outstanding_events{pipeline="clickstream",state="overdue"}': "0x3 10+10x17"},
        ("12m", "20m", "45m"),
        interval="3m",
    ),
    Quiet(
        "a late answer is no growth",
        "StreamproofOverdueGrowing",
        {'streamproof_outstanding_events{pipeline="clickstream",state="overdue"}': "100-1x60"},
        ("20m", "59m"),
    ),
    Quiet(
        "the unknown verdict on a guarantee that nobody claims",
        "StreamproofVerdictUnknown",
        {
            UNSURE.format("at_most_once"): ("1x60"),
            EXACTLY_ONCE: "1x60",
        },
        ("50m",),
    ),
)

# A sidecar that continues with a new state, whose counters start at 0

NEW_STATE_LIVES = (
    Scenario(
        "StreamproofErrorBudgetBurn",
        # Six hours of an old state with 30,000 losses that a plan expects, then a new state: of its events, 1 % is lost
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
