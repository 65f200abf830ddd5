"""Renders docs/alerts.md from the rules."""

from __future__ import annotations

from typing import Final

from dashboards.alerts import alerts, recordings
from dashboards.rules import Alert
from dashboards.settings import Settings

HEAD: Final = """\
# Alerts and recording rules

<!-- Written by `python -m dashboards.site`; scripts/check keeps it current. -->

The rules are in `dashboards/generated/prometheus/rules.yaml`, for Prometheus 2.42 or later. To use your own objective
and address of the runbooks, render them:

```console
$ streamproof dashboards build --out monitoring --objective 0.9999 --runbooks https://example.org/runbooks
$ promtool check rules monitoring/prometheus/rules.yaml
$ streamproof dashboards check --prometheus http://localhost:9090
```

Add the file to `rule_files:` of Prometheus, or let [Grafana](guide/README.md#grafana) evaluate the alerts.

Each alert has annotations with its runbook (`runbook_url`), a dashboard (`dashboard`: its uid, or a link if
`--grafana URL` is given) and, from Prometheus, the sidecar's status page (`status_page`, with the scraped address).
In the committed rules the runbook is the page that the sidecar serves (`http://SIDECAR:9464/runbooks/ALERT`), or, while
no sidecar is up and in alerts that Grafana sends, a path in this repository, which a pager cannot open. So publish
`docs/runbooks`, and render the rules with `--runbooks`.

`critical` alerts page an operator; `warning` alerts are for working hours. Alerts on violations are about the declared
guarantee.

| alert, with its runbook | severity | summary | for | kept for |
|---|---|---|---|---|
"""


def render(settings: Settings) -> str:
    """The reference as Markdown."""
    lines = [_row(alert) for alert in alerts(settings)]
    recorded = [f"| `{rule.name}` | {rule.meaning} |" for rule in recordings()]
    return (
        HEAD
        + "\n".join(lines)
        + "\n\n## Recording rules\n\n| series | what it is |\n|---|---|\n"
        + "\n".join(recorded)
        + "\n\n## Limits\n\n"
        + LIMITS
    )


LIMITS: Final = """\
- `StreamproofSidecarSilent` knows a pipeline from the metrics of the last day. Name the pipelines that must have a
  sidecar: `--pipeline NAME`, repeated, with `build` and with `push`.
- Do not scrape `streamproof validate --once`: it is reported as silent when it ends.
- Each pipeline needs its own name, also across clusters and stages that one Prometheus scrapes (`eu`, `us`;
  `staging`, `prod`).
- Scrape every 15 s: `StreamproofSidecarRestarting` counts the starts that were scraped. `StreamproofOverdueGrowing`
  needs a scrape a minute.
- While a sidecar is silent, alerts about its pipeline resolve; `StreamproofSidecarSilent` replaces them.
- "Kept for" is `keep_firing_for`: in Grafana's alerting since 12.0, in its provisioning files since 12.1.2. With an
  older Grafana such an alert may flap.
- Dashboards do not work with a pipeline name that has a backtick or a line break.
- The dashboards and Grafana's form of the alerts have not been loaded into a Grafana yet.
"""


def _row(alert: Alert) -> str:
    # Labels that the rule itself sets distinguish rules of the same name; labels of the series do not.
    page = f"[{alert.title.removeprefix('Streamproof')}](runbooks/{alert.name}.md)"
    text = alert.summary.replace("{{ .Labels.", "*").replace(" }}", "*")
    return f"| {page} | {alert.severity} | {text} | {alert.pending_for} | {alert.keep_firing_for or 'no'} |"
