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
"""Beginning of an alert's name -> uid of the dashboard to look at; the first that fits."""
STATUS_PAGE: Final = (
    f'{{{{ range query (printf "{select("build_info")}{{pipeline=%q}}" .Labels.pipeline) }}}}'
    "{{ with .Labels.instance }}http://{{ . }}/ {{ end }}{{ end }}"
)
"""Where Prometheus scrapes the sidecar there is its status page. Grafana's templates have no `query`."""
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


VALUE: Final = re.compile(r"{{ \.Value \| (humanize\w*) }}")
"""The number in a text, and the function that writes it: `1.235M`, `2%`, `7m 29s`; as it is, `1.234567e+06`."""
PLURAL: Final = re.compile(r"{{ if eq \.Value 1\.0 }}(.*?){{ else }}(.*?){{ end }}")
"""Words that depend on whether the number is 1: :func:`plural`."""


def plural(one: str, several: str) -> str:
    """A template of ``one`` where the alert's value is 1, and of ``several`` elsewhere."""
    return f"{{{{ if eq .Value 1.0 }}}}{one}{{{{ else }}}}{several}{{{{ end }}}}"


@dataclass(frozen=True)
class Recording:
    """A series that Prometheus keeps ready. ``name`` is `level:metric:operation`, as Prometheus recommends."""

    name: str
    expression: str
    meaning: str


@dataclass(frozen=True)
class Alert:
    """An alert rule.

    ``severity``: `critical` pages somebody, `warning` is for working hours. ``pending_for`` is how long the condition must
    hold, ``keep_firing_for`` how long the alert outlives it where it may flap. ``labels`` tell apart rules of one name.
    ``summary`` and ``description`` are Prometheus templates that use `.Labels` and `.Value` only, the value through a
    function that Grafana has too (`humanize` and its like): a `$` would be taken for a variable by its provisioning.
    The summary names every label in which alerts of one pipeline may differ.
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
        """Unique among all alerts."""
        return " ".join([self.name, *(f"({value})" for value in self.labels.values())])


@dataclass(frozen=True)
class Group:
    """Rules that are evaluated together, each ``interval_seconds``."""

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
    """Uid of the dashboard to look at when ``alert`` fires."""
    return next(uid for beginning, uid in DASHBOARDS.items() if alert.name.startswith(beginning))


def prometheus(groups: Iterable[Group], settings: Settings, faster: int = 1) -> str:
    """The rule file, as YAML that `promtool check rules` reads.

    ``faster`` divides how often rules are evaluated and how long an alert waits and is kept, for a rehearsal; ranges
    and limits inside the expressions stay.
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
    """Where the runbook was published; else the page of a sidecar that is seen, and its path where none is."""
    published = settings.runbook(alert.name)
    if settings.are_runbooks_links:
        return published
    seen = f'query (printf `{select("build_info")}{{pipeline=%q,instance!=""}}` .Labels.pipeline)'
    page = f'http://{{{{ . | first | label "instance" }}}}/{runbook_place(alert.name)}'
    return f"{{{{ with {seen} }}}}{page}{{{{ else }}}}{published}{{{{ end }}}}"


def _divided(duration: str, by: int) -> str:
    """``duration`` as it stands, or its part in whole milliseconds, which is what Prometheus counts in."""
    if by == 1:
        return duration
    return f"{seconds_of(duration) * 1000 // by}ms"


def seconds_of(duration: str) -> int:
    """Seconds in a duration of one unit, such as `30s` or `15m`."""
    return int(duration[:-1]) * _SECONDS[duration[-1]]


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as it reads."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def dump(content: object) -> str:
    """``content`` as YAML under the line that says where it comes from."""
    body = yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)
    return f"# Written by `streamproof dashboards build`; scripts/check keeps it current.\n{body}"
