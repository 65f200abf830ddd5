"""Rules as values, and their form as a Prometheus rule file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import yaml

from dashboards.promql import select
from dashboards.settings import Settings
from validator.publish.runbook_pages import runbook_place

DASHBOARDS: Final = {
    "StreamproofSidecar": "streamproof-sidecar",
    "StreamproofCoverage": "streamproof-sidecar",
    "StreamproofCanary": "streamproof-sidecar",
    "StreamproofFault": "streamproof-faults",
    "Streamproof": "streamproof-pipeline",
}
"""Beginning of an alert's name -> uid of the dashboard to open; the first match counts."""
STATUS_PAGE: Final = (
    f'{{{{ range query (printf "{select("build_info")}{{pipeline=%q}}" .Labels.pipeline) }}}}'
    "{{ if .Labels.instance }}{{ .Labels.scheme }}://{{ .Labels.instance }}/ {{ end }}{{ end }}"
)
"""Link to the sidecar's status page at the address that Prometheus scrapes. Grafana's templates have no `query`."""
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


PLURAL: Final = re.compile(r"{{ if eq \.Value 1\.0 }}(.*?){{ else }}(.*?){{ end }}")
"""Text that depends on whether the value is 1; written by :func:`plural`."""


def plural(one: str, several: str) -> str:
    """A template that renders ``one`` if the alert's value is 1, else ``several``."""
    return f"{{{{ if eq .Value 1.0 }}}}{one}{{{{ else }}}}{several}{{{{ end }}}}"


@dataclass(frozen=True)
class Recording:
    """A recorded series. ``name`` is `level:metric:operation`, as Prometheus recommends."""

    name: str
    expression: str
    meaning: str


@dataclass(frozen=True)
class Alert:
    """An alert rule.

    ``severity``: `critical` pages, `warning` is for working hours. ``pending_for`` is how long the condition must hold
    before the alert fires. ``keep_firing_for`` is how long the alert still fires afterwards, if it may flap. ``labels``
    distinguish rules of the same name. ``summary`` and ``description`` are Prometheus templates that use only `.Labels`
    and `.Value`, and format the value with functions that Grafana also has (such as `humanize`). They must not contain
    `$`, which Grafana's provisioning would expand as a variable. The summary names every label by which alerts of one
    pipeline can differ.
    """

    name: str
    severity: Literal["critical", "warning"]
    expression: str
    summary: str
    description: str
    pending_for: str
    keep_firing_for: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The name and the values of ``labels``. It is unique among all alerts."""
        return " ".join([self.name, *(f"({value})" for value in self.labels.values())])


@dataclass(frozen=True)
class Group:
    """Rules that are evaluated together, every ``interval_seconds``."""

    name: str
    interval_seconds: int
    rules: tuple[Recording | Alert, ...]


def annotations_of(alert: Alert, settings: Settings) -> dict[str, str]:
    """The annotations of ``alert``."""
    return {
        "summary": alert.summary,
        "description": alert.description,
        "runbook_url": settings.runbook(alert.name),
        "dashboard": settings.dashboard(dashboard_of(alert)),
    }


def dashboard_of(alert: Alert) -> str:
    """Uid of the dashboard to open when ``alert`` fires."""
    return next(uid for beginning, uid in DASHBOARDS.items() if alert.name.startswith(beginning))


def prometheus(groups: Iterable[Group], settings: Settings, faster: int = 1) -> str:
    """The rule file as YAML, in the format of `promtool check rules`.

    ``faster`` divides the evaluation interval and the durations `for` and `keep_firing_for`, for a rehearsal; ranges
    and limits inside the expressions do not change.
    """
    content = {
        "groups": [
            {
                "name": group.name,
                "interval": _divided(f"{group.interval_seconds}s", faster),
                "rules": [_rule(rule, settings, faster) for rule in group.rules],
            }
            for group in groups
        ]
    }
    return dump(content)


def _rule(rule: Recording | Alert, settings: Settings, faster: int) -> dict[str, object]:
    if isinstance(rule, Recording):
        return {"record": rule.name, "expr": rule.expression}
    keep_firing_for = {"keep_firing_for": _divided(rule.keep_firing_for, faster)} if rule.keep_firing_for else {}
    return {
        "alert": rule.name,
        "expr": rule.expression,
        "for": _divided(rule.pending_for, faster),
        **keep_firing_for,
        "labels": {"severity": rule.severity, **rule.labels},
        "annotations": {
            **annotations_of(rule, settings),
            "runbook_url": _runbook_url(rule, settings),
            "status_page": STATUS_PAGE,
        },
    }


def _runbook_url(alert: Alert, settings: Settings) -> str:
    """The runbook's published address; else a live sidecar's page, or the runbook's path if no sidecar is live."""
    published = settings.runbook(alert.name)
    if settings.are_runbooks_links:
        return published
    seen = f'query (printf `{select("build_info")}{{pipeline=%q,instance!=""}}` .Labels.pipeline)'
    page = f"{{{{ .Labels.scheme }}}}://{{{{ .Labels.instance }}}}/{runbook_place(alert.name)}"
    return f"{{{{ with {seen} }}}}{{{{ with . | first }}}}{page}{{{{ end }}}}{{{{ else }}}}{published}{{{{ end }}}}"


def _divided(duration: str, by: int) -> str:
    """``duration`` unchanged, or divided and in whole milliseconds, which is Prometheus' resolution."""
    if by == 1:
        return duration
    return f"{seconds_of(duration) * 1000 // by}ms"


def seconds_of(duration: str) -> int:
    """Seconds in a duration of one unit, such as `30s` or `15m`."""
    return int(duration[:-1]) * _SECONDS[duration[-1]]


class _Dumper(yaml.SafeDumper):
    """Writes multi-line text as YAML block text."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def dump(content: object) -> str:
    """``content`` as YAML, with a first line that names the generator."""
    body = yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)
    return f"# Written by `streamproof dashboards build`; scripts/check keeps it current.\n{body}"
