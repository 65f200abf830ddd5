"""The canary on the status page: whether the sidecar still detects violations. The report does not contain it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from validator.model.snapshot import CanaryMeasures
from validator.model.wording import plural
from validator.publish.runbook_pages import runbook_place
from validator.publish.sentences import clock, ratio
from validator.publish.times import rfc3339

RECALL_MIN: Final = 0.9
"""Below this recall the alert StreamproofCanaryMissed fires (`dashboards.alerts.canary_alerts`), and the page warns.
The recall covers 10 rounds with 40 planted violations. It tolerates one late round, but neither two late rounds nor a
class that is never detected."""
RUNBOOK: Final = runbook_place("StreamproofCanaryMissed")


@dataclass(frozen=True)
class CanaryStatus:
    """The canary's part of the status page.

    ``found``: the outcome of the last rounds, in a few words. ``doubt``: why the sidecar's statements about the
    pipeline cannot be trusted, as sentences; empty if they can. ``runbook``: the runbook's path, relative to the page.
    """

    found: str
    doubt: str
    runbook: str = RUNBOOK


def canary_status(measures: CanaryMeasures | None, now_us: int) -> CanaryStatus | None:
    """Return ``measures`` for the page at the instant ``now_us``; None if no canary is configured."""
    if measures is None:
        return None
    recall, alarms = measures.recall_ratio, measures.false_alarms or 0
    is_silent = now_us - measures.judged_us > measures.silent_after_us
    said = []
    if recall is not None and recall < RECALL_MIN:
        missed = [f"{name} {ratio(of)}" for name, of in sorted(measures.class_recall_ratio.items()) if of < 1]
        by_class = f" (by class: {', '.join(missed)})" if missed else ""
        said.append(
            f"The sidecar found only a share of {ratio(recall)} of the violations that its canary planted{by_class}: "
            "the sidecar may also miss violations of the pipeline, so a pass verdict is not reliable."
        )
    if alarms:
        said.append(
            f"The sidecar reported {plural(alarms, 'violation')} that its canary had not planted: the violations "
            "that the sidecar reports for the pipeline may also be false alarms."
        )
    if is_silent:
        said.append(
            f"No round of the canary has been judged since {clock(rfc3339(measures.judged_us))} UTC: it is not known "
            "whether the sidecar finds violations."
        )
    found = "silent" if is_silent else "none judged yet" if recall is None else ratio(recall)
    found += f", {plural(alarms, 'false alarm')}" if alarms else ""
    return CanaryStatus(found, " ".join(said))
