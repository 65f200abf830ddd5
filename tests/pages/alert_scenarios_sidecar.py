"""The purpose of each alert on the sidecar, as series: absent, stuck, blind, behind, or missing its canary."""

from __future__ import annotations

from tests.pages.alert_scenarios import PIPELINE, Quiet, Scenario

BATCH = 'streamproof_last_batch_timestamp_seconds{pipeline="clickstream"}'
ALIVE = 'streamproof_build_info{pipeline="clickstream",version="1"}'
OTHER_ALIVE = 'streamproof_build_info{pipeline="other",version="1"}'
STARTED = 'streamproof_start_timestamp_seconds{pipeline="clickstream"}'
RECALL = 'streamproof_canary_recall_ratio{pipeline="clickstream"}'
WRONG = 'streamproof_canary_false_alarms{pipeline="clickstream"}'
JUDGED = 'streamproof_canary_judged_timestamp_seconds{pipeline="clickstream"}'
SILENT_AFTER = 'streamproof_canary_silent_after_seconds{pipeline="clickstream"}'
DIFFERS = 'streamproof_coverage_differences{pipeline="clickstream"}'
LAG = 'streamproof_read_lag_seconds{pipeline="clickstream",topic="output"}'


def unknown(samples: int) -> str:
    """Return ``samples`` samples of NaN: promtool's notation repeats only numbers."""
    return " ".join(["NaN"] * samples)


LIVES = (
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
        # If the sidecar had been seen before, the rule on its pipeline would fire too.
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
        # The sidecar is up for half a minute of every two and a half, never with a new batch.
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
        # A crash loop: the sidecar is up for half a minute of every three, then it is fixed.
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
        # The sidecar ran for an hour before. Its own start does not count among the four later ones.
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
        # The same as pods, each with its own name.
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
        # A crash loop that never commits a batch.
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
        fires=("10m", "20m"),  # the counts balance again at 17m; the alert is kept for 5 minutes
        resolved="23m",
    ),
    Scenario(
        "StreamproofCoverageWrong",
        {DIFFERS: "0x5 1x10 0x20"},
        PIPELINE,
        "critical",
        silent="5m",
        fires=("8m", "20m"),
        resolved="23m",
        values=("1", "1"),
    ),
    Scenario(
        "StreamproofCanaryMissed",
        # One class is no longer found, with one round per minute: 5 of 40 after 5 rounds.
        {RECALL: "1x5 0.975 0.95 0.925 0.9 0.875 0.85 0.825 0.8 0.775 0.75x10 1x30"},
        {**PIPELINE, "cause": "missed"},
        "critical",
        silent="9m",
        fires=("12m", "24m", "29m"),  # found again at 25m; the alert is kept for 5 minutes
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
        # No round since 10m, although one is due within 6 minutes. Recall keeps its last value.
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

# Two sidecars with the same pipeline name

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
