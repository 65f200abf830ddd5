"""The alert on the canary: whether a sidecar finds the violations that it planted itself.

A pipeline without a canary has none of its series, so none of these fires for it.
"""

from __future__ import annotations

from dashboards.promql import select
from dashboards.rules import Alert, plural
from validator.publish.canary import RECALL_LEAST


def canary() -> tuple[Alert, ...]:
    """`StreamproofCanaryMissed`, by its cause."""
    recall, wrong = select("canary_recall_ratio"), select("canary_false_alarms")
    judged, within = select("canary_judged_timestamp_seconds"), select("canary_silent_after_seconds")
    return (
        Alert(
            "StreamproofCanaryMissed",
            "critical",
            f"min by (pipeline) ({recall}) < {RECALL_LEAST}",
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
            # By the newest of several processes: one that was replaced is no silence.
            f"time() - max by (pipeline) ({judged}) > max by (pipeline) ({within})",
            "the canary of {{ .Labels.pipeline }} is silent",
            "The canary of pipeline {{ .Labels.pipeline }} is configured, but no round was judged for"
            " {{ .Value | humanizeDuration }}: whether the sidecar finds violations of any class is unknown.",
            pending_for="5m",
            labels={"cause": "silent"},
        ),
    )
