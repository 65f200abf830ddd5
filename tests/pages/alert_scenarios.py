"""What each alert is for, as series: when it must be silent, fire and resolve.

Values are promtool's notation at one sample a minute: `0x5 3x10` is six zeros, then eleven threes. `_` is no sample.
"""

from __future__ import annotations

from dataclasses import dataclass

PIPELINE = {"pipeline": "clickstream"}
EXACTLY_ONCE = 'streamproof_guarantee_declared{pipeline="clickstream",guarantee="exactly_once"}'
AT_LEAST_ONCE = 'streamproof_guarantee_declared{pipeline="clickstream",guarantee="at_least_once"}'
EXPECTED = 'streamproof_events_total{pipeline="clickstream",class="expected"}'
MISSING = 'streamproof_violations_confirmed_total{pipeline="clickstream",class="missing",phase="control"}'
PLANNED = 'streamproof_violations_expected{pipeline="clickstream",class="missing"}'
RETRACTED = 'streamproof_violations_retracted_total{pipeline="clickstream",class="missing"}'
BATCH = 'streamproof_last_batch_timestamp_seconds{pipeline="clickstream"}'
ALIVE = 'streamproof_build_info{pipeline="clickstream",version="1"}'
OTHER_ALIVE = 'streamproof_build_info{pipeline="other",version="1"}'
UNSURE = 'streamproof_guarantee_status{{pipeline="clickstream",guarantee="{}",over="1h",status="unknown"}}'
STARTED = 'streamproof_start_timestamp_seconds{pipeline="clickstream"}'
RECALL = 'streamproof_canary_recall_ratio{pipeline="clickstream"}'
WRONG = 'streamproof_canary_false_alarms{pipeline="clickstream"}'
JUDGED = 'streamproof_canary_judged_timestamp_seconds{pipeline="clickstream"}'
SILENT_AFTER = 'streamproof_canary_silent_after_seconds{pipeline="clickstream"}'
LAG = 'streamproof_read_lag_seconds{pipeline="clickstream",topic="output"}'


def unknown(samples: int) -> str:
    """That many samples of NaN: promtool's notation repeats numbers only."""
    return " ".join(["NaN"] * samples)


@dataclass(frozen=True)
class Scenario:
    """One alert's life. ``labels`` are those of the fired alert, without name and severity; times are promtool's."""

    alert: str
    series: dict[str, str]
    labels: dict[str, str]
    severity: str
    silent: str
    fires: tuple[str, ...]
    resolved: str
    values: tuple[str, ...] = ()  # what `.Value` is at each of ``fires``, where the description says it
    interval: str = "1m"  # between two samples
    beside: str = ""  # severity of the alert's rule without labels of its own, where that fires with this and goes on


@dataclass(frozen=True)
class Quiet:
    """Series on which ``alert`` must never fire."""

    why: str
    alert: str
    series: dict[str, str]
    at: tuple[str, ...]
    interval: str = "1m"


LIVES = (
    Scenario(
        "StreamproofGuaranteeViolated",
        {
            'streamproof_violations_open{pipeline="clickstream",class="duplicate"}': "0x5 3x10 0x20",
            EXACTLY_ONCE: "1x40",
        },
        {**PIPELINE, "class": "duplicate"},
        "critical",
        silent="5m",
        fires=("7m", "16m", "19m"),  # acknowledged at 17m; it is kept for 5 minutes
        resolved="25m",
        values=("3", "3", "3"),
    ),
    Scenario(
        "StreamproofGuaranteeViolated",
        # A fault whose plan expects 30 of them is no excuse for the 2 that come later, nor for those of another class.
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
        # As below, but another 2 % are lost that a plan expects.
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
        # After six clean hours 2 % are lost for 80 minutes; the hour's ratio is above 14.4 x 0.1 % when 44 were bad.
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
        # After six clean hours 1 % is lost for seven; that of 6 hours is above 6 x 0.1 % when 216 minutes were bad.
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
        fires=("12m", "20m", "40m"),  # it stops to grow at 30m; the derivative looks 2 minutes back, then 10 are kept
        resolved="45m",
        values=("20", "100", "200"),
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
        # Its plan expects repeats; after a day they are expected no more, and the plain alert goes on.
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
        # Mutes of other faults come and go, each for less than the alert waits.
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
    Scenario(
        "StreamproofSidecarSilent",
        {ALIVE: "1x10 _x30 1x30", OTHER_ALIVE: "1x80"},
        {**PIPELINE, "scope": "pipeline"},
        "critical",
        silent="10m",
        fires=("25m",),
        resolved="45m",
    ),
    Scenario(
        "StreamproofSidecarSilent",
        # One that was seen before would fire the rule on a pipeline too.
        {ALIVE: "_x30 1x30"},
        {"scope": "fleet"},
        "critical",
        silent="8m",
        fires=("15m",),
        resolved="32m",
    ),
    Scenario(
        "StreamproofSidecarStalled",
        # promtool's clock starts at 0, so minute n is second 60 n.
        {BATCH: "0+60x10 600x10 1260+60x20"},
        PIPELINE,
        "critical",
        silent="12m",
        fires=("16m",),
        resolved="25m",
        values=("360",),
    ),
    Scenario(
        "StreamproofSidecarStalled",
        # Seen for half a minute of every two and a half, and never with a new batch.
        {BATCH: "0+15x40 600 " + "600 600 _x8 " * 8 + "1860+15x40"},
        PIPELINE,
        "critical",
        silent="12m",
        fires=("16m", "25m"),
        resolved="32m",
        values=("360", "900"),
        interval="15s",
    ),
    Scenario(
        "StreamproofSidecarRestarting",
        # A crash loop: seen for half a minute of every three, then mended.
        {STARTED: " ".join(f"{180 * n} {180 * n} _x10" for n in range(10)) + " 1800x200"},
        PIPELINE,
        "critical",
        silent="8m",
        fires=("10m", "30m", "40m"),
        resolved="60m",
        values=("4", "11", "7"),
        interval="15s",
    ),
    Scenario(
        "StreamproofSidecarRestarting",
        # One that ran for an hour before: its own start is none of the four that came since.
        {STARTED: "0x240 3660x8 3780x8 3900x8 4020x200"},
        PIPELINE,
        "critical",
        silent="66m",
        fires=("68m", "90m"),
        resolved="92m",
        values=("4", "4"),
        interval="15s",
    ),
    Scenario(
        "StreamproofSidecarRestarting",
        # The same as pods, each with a name of its own.
        {f'{STARTED[:-1]},instance="{n}"}}': f"_x{12 * n} " + f"{180 * n} {180 * n} _x200" for n in range(4)},
        PIPELINE,
        "critical",
        silent="8m",
        fires=("10m", "30m"),
        resolved="35m",
        values=("4", "4"),
        interval="15s",
    ),
    Scenario(
        "StreamproofSidecarBlind",
        # A crash loop in which no batch is ever committed.
        {BATCH: "NaN NaN _x10 " * 10 + "1800+15x40"},
        {**PIPELINE, "cause": "no_batch"},
        "critical",
        silent="9m",
        fires=("11m", "25m"),
        resolved="31m",
        interval="15s",
    ),
    Scenario(
        "StreamproofSidecarBehind",
        {LAG: "1x5 400x20 1x30"},
        {**PIPELINE, "topic": "output"},
        "warning",
        silent="8m",
        fires=("15m", "29m"),
        resolved="35m",
        values=("400", "400"),
    ),
    Scenario(
        "StreamproofSidecarBlind",
        {LAG: f"1x5 {unknown(20)} 1x30"},
        {**PIPELINE, "topic": "output", "cause": "unread_topic"},
        "critical",
        silent="12m",
        fires=("20m",),
        resolved="30m",
    ),
    Scenario(
        "StreamproofSidecarBlind",
        {BATCH: f"{unknown(21)} 1260+60x30"},
        {**PIPELINE, "cause": "no_batch"},
        "critical",
        silent="8m",
        fires=("15m",),
        resolved="25m",
    ),
    Scenario(
        "StreamproofCoverageIncomplete",
        {'streamproof_coverage_complete{pipeline="clickstream"}': "1x5 0x10 1x20", BATCH: "0+60x40"},
        PIPELINE,
        "critical",
        silent="5m",
        fires=("10m", "20m"),  # it balances again at 17m, and is kept for 5
        resolved="23m",
    ),
    Scenario(
        "StreamproofCanaryMissed",
        # One class is not found any more, a round a minute: 5 of 40 after 5 rounds.
        {RECALL: "1x5 0.975 0.95 0.925 0.9 0.875 0.85 0.825 0.8 0.775 0.75x10 1x30"},
        {**PIPELINE, "cause": "missed"},
        "critical",
        silent="9m",
        fires=("12m", "24m", "29m"),  # found again at 25m; it is kept for 5 minutes
        resolved="32m",
        values=("0.825", "0.75", "0.75"),
    ),
    Scenario(
        "StreamproofCanaryMissed",
        {WRONG: "0x5 2x10 0x20", RECALL: "1x40"},
        {**PIPELINE, "cause": "false_alarm"},
        "warning",
        silent="5m",
        fires=("8m", "20m"),
        resolved="23m",
        values=("2", "2"),
    ),
    Scenario(
        "StreamproofCanaryMissed",
        # No round since 10m, where one is due within 6 minutes; recall says what it said last.
        {JUDGED: "0+60x10 600x20 1860+60x20", SILENT_AFTER: "360x60", RECALL: "1x60"},
        {**PIPELINE, "cause": "silent"},
        "warning",
        silent="16m",
        fires=("23m",),
        resolved="32m",
        values=("780",),
    ),
)

QUIET = (
    Quiet(
        "a canary that was started anew, and has not judged its first round yet",
        "StreamproofCanaryMissed",
        {JUDGED: "0+60x10 660x5 1020+60x20", SILENT_AFTER: "360x40"},
        ("12m", "16m", "20m"),
    ),
    Quiet(
        "a single round that was found late",
        "StreamproofCanaryMissed",
        {RECALL: "1x5 0.9x10 1x20", WRONG: "0x35"},
        ("7m", "15m", "20m"),
    ),
    Quiet(
        "a pipeline without a canary",
        "StreamproofCanaryMissed",
        {BATCH: "0+60x40", ALIVE: "1x40"},
        ("10m", "39m"),
    ),
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
        "an upgrade that was taken back, each with a restart",
        "StreamproofSidecarRestarting",
        {STARTED: "0x20 _x2 330x20 _x2 660x100"},
        ("3m", "8m", "15m", "35m"),
        interval="15s",
    ),
    Quiet(
        "three restarts of one that ran before",
        "StreamproofSidecarRestarting",
        {STARTED: "0x240 3660x8 3780x8 3900x200"},
        ("61m", "66m", "80m", "91m"),
        interval="15s",
    ),
    Quiet(
        "one that is gone is called silent only",
        "StreamproofSidecarStalled",
        {BATCH: "0+15x40 _x80"},
        ("12m", "13m", "14m", "15m", "20m"),
        interval="15s",
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
    Quiet(
        "coverage is 0 by convention before the first batch",
        "StreamproofCoverageIncomplete",
        {'streamproof_coverage_complete{pipeline="clickstream"}': "0x20", BATCH: unknown(21)},
        ("10m",),
    ),
    Quiet(
        "a sidecar that idles still commits ticks",
        "StreamproofSidecarStalled",
        {BATCH: "0+60x40"},
        ("20m", "40m"),
    ),
)
