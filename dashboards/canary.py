"""The alert on the canary: whether a sidecar finds the violations that it planted itself.

A pipeline without a canary has none of its series, so none of these fires for it.
"""

from __future__ import annotations

from dashboards.promql import select
from dashboards.rules import Alert, by_number
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
            "the sidecar of {{ .Labels.pipeline }} does not find what was planted",
            "The sidecar of pipeline {{ .Labels.pipeline }} found only {{ .Value | humanizePercentage }} of the"
            " violations that its canary planted: one of any class in the pipeline may go unseen too, and silence means"
            " nothing.",
            waits="1m",
            keeps="5m",
            labels={"cause": "missed"},
        ),
        Alert(
            "StreamproofCanaryMissed",
            "warning",
            f"max by (pipeline) ({wrong}) > 0",
            "the sidecar of {{ .Labels.pipeline }} accuses what is right",
            "The sidecar of pipeline {{ .Labels.pipeline }} called {{ .Value | humanize }}"
            f" {by_number('contribution', 'contributions')} of its canary"
            f" {by_number('a violation of a class that it is not', 'violations of a class that they are not')}: what it"
            " says of the pipeline may be a false alarm too.",
            waits="1m",
            keeps="5m",
            labels={"cause": "false_alarm"},
        ),
        Alert(
            "StreamproofCanaryMissed",
            "warning",
            # By the newest of several processes: one that was replaced is no silence.
            f"time() - max by (pipeline) ({judged}) > max by (pipeline) ({within})",
            "the canary of {{ .Labels.pipeline }} is silent",
            "The canary of pipeline {{ .Labels.pipeline }} is configured, and no round of it was judged for"
            " {{ .Value | humanizeDuration }}: whether the sidecar finds a violation of any class is not known.",
            waits="5m",
            labels={"cause": "silent"},
        ),
    )
