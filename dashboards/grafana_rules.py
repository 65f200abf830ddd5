"""Alerts for Grafana's own alerting: for its provisioning API and its provisioning files.

A Prometheus alert fires for every series that its expression returns, whatever the value. Grafana's own import of
Prometheus rules reproduces this in three steps, and so does this module: the query, a condition that is 1 for any value
(including NaN and infinity), and a threshold above 0. Recorded series are replaced by their expressions, because
Grafana may run without a Prometheus that evaluates rules.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from dashboards.alerts import groups, recordings
from dashboards.rules import Alert, Group, annotations_of, dump
from dashboards.settings import Settings

EXPRESSION: Final = "__expr__"
QUERY, SEEN, THRESHOLD = "query", "seen", "threshold"
LOOKBACK_SECONDS: Final = 600
ORGANIZATION: Final = 1
FOLDER_TITLE: Final = "streamproof"
KEEP_FIRING_FIELD: Final = "keep_firing_for"
"""Rule field of the API since Grafana 12.0; `keepFiringFor` in provisioning files since 12.1.2. Older versions have
neither.
"""
Json = dict[str, Any]


@dataclass(frozen=True)
class RuleDestination:
    """Where rules are stored in Grafana: organization number, folder, and the data source that they query."""

    organization: int
    folder_uid: str
    datasource_uid: str


def alert_groups(settings: Settings) -> tuple[tuple[Group, tuple[Alert, ...]], ...]:
    """Each group that has alerts, with its alerts."""
    found = ((group, tuple(r for r in group.rules if isinstance(r, Alert))) for group in groups(settings))
    return tuple((group, alerts) for group, alerts in found if alerts)


def inline_recordings(expression: str) -> str:
    """``expression`` with each recorded series replaced by the expression that it records."""
    for recording in recordings():
        expression = expression.replace(recording.name, f"(\n{recording.expression}\n)")
    return expression


def uid_of(alert: Alert) -> str:
    """The rule's stable uid: letters, digits, `-` and `_`, at most 40 characters."""
    words = re.sub(r"(?<!^)(?=[A-Z])", "-", alert.name.removeprefix("Streamproof")).lower()
    return "-".join(["streamproof", words, *alert.labels.values()])


def api_group(group: Group, alerts: tuple[Alert, ...], settings: Settings, place: RuleDestination) -> Json:
    """The body of `PUT /api/v1/provisioning/folder/{uid}/rule-groups/{group}`."""
    rules = [
        {
            **_rule(alert, settings, place.datasource_uid),
            "orgID": place.organization,
            "folderUID": place.folder_uid,
            "ruleGroup": group.name,
            **({KEEP_FIRING_FIELD: alert.keep_firing_for} if alert.keep_firing_for else {}),
        }
        for alert in alerts
    ]
    return {"title": group.name, "folderUid": place.folder_uid, "interval": group.interval_seconds, "rules": rules}


def provisioning_file(settings: Settings, datasource_uid: str) -> str:
    """The file for Grafana's folder `provisioning/alerting`."""
    built = [
        {
            "orgId": ORGANIZATION,
            "name": group.name,
            "folder": FOLDER_TITLE,
            "interval": f"{group.interval_seconds}s",
            "rules": [
                {
                    **_rule(alert, settings, datasource_uid),
                    **({"keepFiringFor": alert.keep_firing_for} if alert.keep_firing_for else {}),
                }
                for alert in alerts
            ],
        }
        for group, alerts in alert_groups(settings)
    ]
    return dump({"apiVersion": 1, "groups": built})


def _rule(alert: Alert, settings: Settings, datasource_uid: str) -> Json:
    texts = annotations_of(alert, settings)
    # In Grafana `.Value` is a text with all values; the number is the value of the query.
    for name in ("summary", "description"):
        texts[name] = re.sub(r"(?<= )\.Value(?= )", f".Values.{QUERY}.Value", texts[name])
    return {
        "uid": uid_of(alert),
        "title": alert.title,
        "condition": THRESHOLD,
        "data": _steps(inline_recordings(alert.expression), datasource_uid),
        "noDataState": "OK",  # a Prometheus alert without series does not fire
        "execErrState": "Error",
        "for": alert.pending_for,
        "annotations": texts,
        "labels": {"severity": alert.severity, **alert.labels},
        "isPaused": False,
    }


def _steps(expression: str, datasource_uid: str) -> list[Json]:
    any_value = " || ".join(f"{test}(${QUERY})" for test in ("is_number", "is_nan", "is_inf"))
    query = {"type": "prometheus", "uid": datasource_uid}
    return [
        _step(QUERY, query, {"expr": expression, "instant": True, "range": False}),
        _step(SEEN, None, {"type": "math", "expression": any_value}),
        _step(
            THRESHOLD,
            None,
            {
                "type": "threshold",
                "expression": SEEN,
                "conditions": [{"type": "query", "evaluator": {"type": "gt", "params": [0]}}],
            },
        ),
    ]


def _step(reference: str, datasource: Json | None, model: Json) -> Json:
    source = datasource or {"type": EXPRESSION, "uid": EXPRESSION}
    # Grafana stores both numbers; they are set here so that a second push finds no difference.
    defaults = {"intervalMs": 1000, "maxDataPoints": 43200}
    return {
        "refId": reference,
        "relativeTimeRange": {"from": LOOKBACK_SECONDS, "to": 0},
        "datasourceUid": source["uid"],
        "model": {"refId": reference, "datasource": source, **defaults, **model},
    }
