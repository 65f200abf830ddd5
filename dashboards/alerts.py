"""All recording rules and all alerts."""

from __future__ import annotations

from typing import Final

from dashboards.promql import breaking, error_ratio, select
from dashboards.rules import Alert, Group, Recording, plural, seconds_of
from dashboards.settings import Settings
from validator.measure.expected import MINUTE_US, UNHEALED_US
from validator.publish.canary import RECALL_MIN

INTERVAL_SECONDS: Final = 30
STALLED_SECONDS: Final = 120
GAP: Final = "5m"
"""Series that are absent for less than this time count as uninterrupted, so that a crash loop of the sidecar does not
reset the waiting time of an alert.
"""
STALLED_GAP: Final = "3m"
"""Range over which StreamproofSidecarStalled looks back. It is shorter than `STALLED_SECONDS` plus the waiting time of
that alert, so that the alert does not fire for a sidecar that was removed."""
STARTS_WITHIN: Final = "30m"
STARTS_MOST: Final = 3
BEHIND_SECONDS: Final = 300
SEEN_WITHIN: Final = "1d"
"""A pipeline whose sidecar is silent for longer counts as removed."""

OPEN: Final = "pipeline_class:streamproof_violations_breaking:open"


def ratio_name(over: str) -> str:
    """Name of the recorded error ratio over the range ``over``."""
    return f"pipeline:streamproof_error:ratio_increase{over}"


def recordings() -> tuple[Recording, ...]:
    """The recording rules, in the order of evaluation."""
    ratios = tuple(
        Recording(
            ratio_name(over),
            error_ratio(over),
            f"Share of contributions that broke the declared guarantee, over {over}.",
        )
        for over in ("5m", "30m", "1h", "6h")
    )
    meaning = (
        "Confirmed violations of the classes that break the declared guarantee, except acknowledged violations "
        "and violations that a fault plan expects."
    )
    return (Recording(OPEN, breaking(), meaning), *ratios)


def groups(settings: Settings) -> tuple[Group, ...]:
    """All rule groups."""
    return (
        Group("streamproof-recording", INTERVAL_SECONDS, recordings()),
        Group("streamproof-pipeline", INTERVAL_SECONDS, (*_guarantee(settings), *_pipeline())),
        Group("streamproof-sidecar", INTERVAL_SECONDS, (*_silence(settings), *_sidecar(), *canary_alerts())),
    )


def alerts(settings: Settings) -> tuple[Alert, ...]:
    """All alerts."""
    return tuple(rule for group in groups(settings) for rule in group.rules if isinstance(rule, Alert))


def _guarantee(settings: Settings) -> tuple[Alert, ...]:
    return (
        Alert(
            "StreamproofGuaranteeViolated",
            "critical",
            f"{OPEN} > 0",
            "{{ .Labels.pipeline }} breaks its guarantee: {{ .Labels.class }}",
            "Pipeline {{ .Labels.pipeline }} has {{ .Value | humanize }} confirmed"
            f" {plural('violation', 'violations')} of class {{{{ .Labels.class }}}} that"
            f" {plural('is', 'are')} not acknowledged and that no fault plan expects. The guarantee that the"
            f" pipeline declares does not tolerate {plural('it', 'them')}.",
            pending_for="0s",
            keep_firing_for="5m",  # bridges the restart of a sidecar, which serves no metrics for about a minute
        ),
        _burn(settings, "fast", "critical", 14.4, ("1h", "5m"), pending_for="2m", keep_firing_for="5m"),
        _burn(settings, "slow", "warning", 6, ("6h", "30m"), pending_for="15m", keep_firing_for="15m"),
    )


def _burn(
    settings: Settings,
    speed: str,
    severity: str,
    rate: float,
    windows: tuple[str, str],
    *,
    pending_for: str,
    keep_firing_for: str,
) -> Alert:
    """Burn rates and windows are from the SRE workbook, chapter 5, table 5-8 (30 days)."""
    limit = f"{rate:g} * {settings.budget_ratio:.12g}"
    long, short = windows
    return Alert(
        "StreamproofErrorBudgetBurn",
        "critical" if severity == "critical" else "warning",
        f"{ratio_name(long)} > {limit}\nand\n{ratio_name(short)} > {limit}",
        f"{{{{ .Labels.pipeline }}}} uses its error budget at more than {rate:g} times the allowed rate over {long}",
        f"In the last {long}, {{{{ .Value | humanizePercentage }}}} of the contributions of pipeline "
        f"{{{{ .Labels.pipeline }}}} broke its declared guarantee. This is more than {rate:g} times the share that its "
        f"objective of {settings.objective_ratio:.12g} allows. The share in the last {short} is above that limit, too. "
        f"For the numbers by class, including violations that fault plans expect, run the query "
        f"sum by (pipeline, class) (increase({select('violations_confirmed_total', over=long)})).",
        pending_for=pending_for,
        keep_firing_for=keep_firing_for,
        labels={"window": long, "speed": speed},
    )


def _pipeline() -> tuple[Alert, ...]:
    overdue = select("outstanding_events", {"state": "overdue"})
    unknown = select("guarantee_status", {"over": "1h", "status": "unknown"})
    return (
        Alert(
            "StreamproofOverdueGrowing",
            "warning",
            f"sum by (pipeline) ({overdue}) > 0\nand\n"
            f"sum by (pipeline) (deriv({select('outstanding_events', {'state': 'overdue'}, '2m')})) > 0\n"
            f"unless on (pipeline)\n{select('fault_expects', {'class': 'overdue'})} == 1",
            "{{ .Labels.pipeline }} has a growing number of overdue contributions",
            "Pipeline {{ .Labels.pipeline }} has {{ .Value | humanize }}"
            f" {plural('contribution', 'contributions')} of class overdue, and the number is growing."
            " After timing.missing_after they become missing, except in two cases: an unreadable record may have"
            " advanced the engine's watermark and made the event late, or the result may have expired.",
            # This early warning must fire before missing_after (default 120 s) has passed.
            pending_for="30s",
            keep_firing_for="10m",
        ),
        Alert(
            "StreamproofInputUnconsumed",
            "critical",
            f"sum by (pipeline) ({select('unconsumed_overdue_events')}) > 0\n"
            f"unless on (pipeline)\n{select('fault_expects', {'class': 'overdue'})} == 1",
            "the engine of {{ .Labels.pipeline }} is down or behind",
            "Pipeline {{ .Labels.pipeline }} has {{ .Value | humanize }}"
            f" {plural('contribution', 'contributions')} of class unconsumed for longer than timing.missing_after:"
            " the engine's consumer group has not read the input that far. No loss is proven, and at-least-once and"
            " exactly-once cannot be judged.",
            pending_for="5m",
            keep_firing_for="5m",
        ),
        Alert(
            "StreamproofVerdictUnknown",
            "warning",
            f"max by (pipeline, guarantee) ({unknown}) == 1\nand on (pipeline, guarantee)\n"
            f"{select('guarantee_declared')} == 1",
            "{{ .Labels.pipeline }} has no verdict: {{ .Labels.guarantee }} is unknown",
            "The verdict on {{ .Labels.guarantee }} of pipeline {{ .Labels.pipeline }} is unknown: the sidecar cannot"
            " exclude unseen violations of any class. Its report has the reasons.",
            pending_for="30m",
            keep_firing_for="10m",
        ),
        *_not_healed(),
    )


def _not_healed() -> tuple[Alert, ...]:
    """A muted violation class does not page. The first alert pages for an unhealed fault that mutes classes. The second
    ignores mutes, because each mute that begins or ends would restart its waiting time.
    """
    active = f"max by (pipeline, fault, kind, target) (last_over_time({select('fault_active', over=GAP)})) == 1"
    mutes = f"max by (pipeline) (last_over_time({select('fault_expects', over=GAP)})) == 1"
    summary = (
        "fault {{ .Labels.fault }} on {{ .Labels.pipeline }} is not healed ({{ .Labels.kind }} on {{ .Labels.target }})"
    )
    injected = (
        "Fault {{ .Labels.fault }} ({{ .Labels.kind }} on {{ .Labels.target }}) of pipeline {{ .Labels.pipeline }}"
        " was injected, and the faults topic has no record of its healing"
    )
    return (
        Alert(
            "StreamproofFaultNotHealed",
            "critical",
            f"{active}\nand on (pipeline)\n{mutes}",
            f"{summary}, and mutes alerts",
            f"{injected}. Until it is healed, the fault plans of this pipeline mute the classes in"
            " streamproof_fault_expects: violations of these classes fire no alert. If the fault is never healed, the"
            f" mute ends after about {UNHEALED_US // (60 * MINUTE_US)} hours.",
            pending_for="30m",
            labels={"effect": "mute"},
        ),
        Alert(
            "StreamproofFaultNotHealed",
            "warning",
            active,
            summary,
            f"{injected}: violations of every class are still attributed to it.",
            pending_for="30m",
        ),
    )


def _silence(settings: Settings) -> tuple[Alert, ...]:
    alive = select("build_info")
    expected = [f"max by (pipeline) (last_over_time({select('build_info', over=SEEN_WITHIN)}))"]
    expected += [f"absent({select('build_info', {'pipeline': name})})" for name in settings.pipelines]
    return (
        Alert(
            "StreamproofSidecarSilent",
            "critical",
            f"({' or '.join(expected)})\nunless\nmax by (pipeline) ({alive})",
            "{{ .Labels.pipeline }} is not monitored",
            "The sidecar of pipeline {{ .Labels.pipeline }} serves no metrics now. It served metrics within the last"
            " day, or the rules list it as required. If a violation of any class occurs, no alert reports it.",
            pending_for="5m",
            labels={"scope": "pipeline"},
        ),
        Alert(
            "StreamproofSidecarSilent",
            "critical",
            f"absent({alive})",
            "no sidecar serves metrics",
            "No streamproof sidecar serves metrics. If a violation of any class occurs, no alert reports it.",
            pending_for="10m",
            labels={"scope": "fleet"},
        ),
    )


def _sidecar() -> tuple[Alert, ...]:
    last = select("last_batch_timestamp_seconds")
    recent = f"last_over_time({select('last_batch_timestamp_seconds', over=GAP)})"
    lag, recent_lag = select("read_lag_seconds"), f"last_over_time({select('read_lag_seconds', over=GAP)})"
    batch = select("last_batch_timestamp_seconds", over=STALLED_GAP)
    # The metric's value is the time of the start. The number of starts in the range is the number of
    # changes of this value, plus one if its minimum is within the range. A new pod is a new series.
    started = select("start_timestamp_seconds", over=STARTS_WITHIN)
    first = f"(min_over_time({started}) >= bool time() - {seconds_of(STARTS_WITHIN)})"
    starts = f"sum by (pipeline) (changes({started}) + {first})"
    return (
        Alert(
            "StreamproofSidecarRestarting",
            "critical",
            f"{starts} > {STARTS_MOST}",
            "the sidecar of {{ .Labels.pipeline }} keeps restarting",
            f"The sidecar of pipeline {{{{ .Labels.pipeline }}}} was started {{{{ .Value | humanize }}}} times"
            f" within {STARTS_WITHIN}. While it restarts, it judges no event. It finds violations of any class"
            " late or never.",
            pending_for="0s",
        ),
        Alert(
            "StreamproofSidecarTwice",
            "warning",
            f"count by (pipeline) ({select('build_info')}) > 1",
            "several sidecars use the pipeline name {{ .Labels.pipeline }}",
            "{{ .Value | humanize }} sidecars use the pipeline name {{ .Labels.pipeline }}, or one is scraped more than"
            " once. Alerts and dashboards cannot distinguish them: no alert fires when one of them falls silent or"
            " stalls, and violations of every class are added up.",
            pending_for="10m",  # during a replacement both sidecars are visible for about a minute
        ),
        Alert(
            "StreamproofSidecarStalled",
            "critical",
            f"time() - max by (pipeline) (last_over_time({batch})) > {STALLED_SECONDS}",
            "the sidecar of {{ .Labels.pipeline }} has stalled",
            "The sidecar of pipeline {{ .Labels.pipeline }} serves metrics and has committed no batch for"
            " {{ .Value | humanizeDuration }}: its verdicts are stale, and no violation of any class is found.",
            pending_for="2m",
        ),
        Alert(
            "StreamproofSidecarBehind",
            "warning",
            f"max by (pipeline, topic) ({lag}) > {BEHIND_SECONDS}",
            "the sidecar of {{ .Labels.pipeline }} is behind on {{ .Labels.topic }}",
            "The sidecar of pipeline {{ .Labels.pipeline }} is {{ .Value | humanizeDuration }} behind on topic"
            f" {{{{ .Labels.topic }}}} (limit: {BEHIND_SECONDS // 60}m), so it finds violations of any class"
            " that much later.",
            pending_for="5m",
            keep_firing_for="5m",
        ),
        Alert(
            "StreamproofSidecarBlind",
            "critical",
            f"count by (pipeline, topic) ({recent_lag} != {recent_lag})",
            "the sidecar of {{ .Labels.pipeline }} cannot read {{ .Labels.topic }}",
            "The sidecar of pipeline {{ .Labels.pipeline }} has never read topic {{ .Labels.topic }} through to its"
            " end. Until it has done so, it cannot confirm violations of class missing (if it is an output, late or"
            " rejected topic), or of classes duplicate, misplaced and unknown_id (if it is an input topic).",
            pending_for="10m",
            labels={"cause": "unread_topic"},
        ),
        Alert(
            "StreamproofSidecarBlind",
            "critical",
            f"count by (pipeline) ({recent} != {recent})",
            "the sidecar of {{ .Labels.pipeline }} has committed no batch yet",
            "The sidecar of pipeline {{ .Labels.pipeline }} has committed no batch yet: it judges no violation class.",
            pending_for="10m",
            labels={"cause": "no_batch"},
        ),
        Alert(
            "StreamproofCoverageIncomplete",
            "critical",
            # Before the first batch this metric is 0 by convention; StreamproofSidecarBlind covers that case.
            f"min by (pipeline) ({select('coverage_complete')}) == 0\nand on (pipeline)\n{last} > 0",
            "the coverage of {{ .Labels.pipeline }} is incomplete",
            "The sidecar of pipeline {{ .Labels.pipeline }} cannot account for every record: some expired or were"
            " compacted before it read them, a topic was recreated, a log was cut back, or its coverage sums do not"
            " balance. Counts of every class may be too low.",
            pending_for="1m",
            keep_firing_for="5m",
        ),
        Alert(
            "StreamproofCoverageWrong",
            "critical",
            f"max by (pipeline) ({select('coverage_differences')}) > 0",
            "the sidecar of {{ .Labels.pipeline }} counts wrongly",
            "In the sidecar of pipeline {{ .Labels.pipeline }}, {{ .Value | humanize }} coverage"
            f" {plural('sum does', 'sums do')} not hold, or a second reading of a topic differs from what the sidecar"
            " stored. It lost or doubled records: do not rely on its counts of any class.",
            pending_for="1m",
            keep_firing_for="5m",
        ),
    )


def canary_alerts() -> tuple[Alert, ...]:
    """`StreamproofCanaryMissed`, one rule per cause. None fires for a pipeline without a canary, which has no such
    series.
    """
    recall, wrong = select("canary_recall_ratio"), select("canary_false_alarms")
    judged, within = select("canary_judged_timestamp_seconds"), select("canary_silent_after_seconds")
    return (
        Alert(
            "StreamproofCanaryMissed",
            "critical",
            f"min by (pipeline) ({recall}) < {RECALL_MIN}",
            "the sidecar of {{ .Labels.pipeline }} does not find planted violations",
            "The sidecar of pipeline {{ .Labels.pipeline }} found only {{ .Value | humanizePercentage }} of the"
            " violations that its canary planted. It may miss violations of any class in the pipeline, too.",
            pending_for="1m",
            keep_firing_for="5m",
            labels={"cause": "missed"},
        ),
        Alert(
            "StreamproofCanaryMissed",
            "warning",
            f"max by (pipeline) ({wrong}) > 0",
            "the sidecar of {{ .Labels.pipeline }} reports false violations",
            "The sidecar of pipeline {{ .Labels.pipeline }} reported {{ .Value | humanize }} correct"
            f" {plural('contribution', 'contributions')} of its canary as"
            f" {plural('a violation', 'violations')}. Violations of any class in the pipeline may be false, too.",
            pending_for="1m",
            keep_firing_for="5m",
            labels={"cause": "false_alarm"},
        ),
        Alert(
            "StreamproofCanaryMissed",
            "warning",
            # The newest of several processes counts, so that a replaced sidecar is not reported as silent.
            f"time() - max by (pipeline) ({judged}) > max by (pipeline) ({within})",
            "the canary of {{ .Labels.pipeline }} is silent",
            "The canary of pipeline {{ .Labels.pipeline }} is configured, but the sidecar judged no canary round for"
            " {{ .Value | humanizeDuration }}: it is unknown whether the sidecar finds violations of any class.",
            pending_for="5m",
            labels={"cause": "silent"},
        ),
    )
