"""docs/alerts.md, made from the rules."""

from __future__ import annotations

from typing import Final

from dashboards.alerts import alerts, recordings
from dashboards.rules import NUMBERED, VALUE, Alert
from dashboards.settings import Settings

HEAD: Final = """\
# Alerts and recording rules

<!-- Written by `python -m dashboards.site`; scripts/check keeps it current. -->

The rules are `dashboards/generated/prometheus/rules.yaml` for Prometheus 2.42 or later (`keep_firing_for`). For your
own objective and your own address of the runbooks, render them anew:

```console
$ streamproof dashboards build --out monitoring --objective 0.9999 --runbooks https://example.org/runbooks
$ promtool check rules monitoring/prometheus/rules.yaml
$ streamproof dashboards check --prometheus http://localhost:9090
```

Name the file under `rule_files:` of Prometheus. Or let Grafana evaluate the alerts: `streamproof dashboards push`, or
the files below `grafana/provisioning/`. Do one of the two, else every alert comes twice
([guide](guide/README.md#grafana)).

Each alert names its runbook (`runbook_url`), a dashboard (`dashboard`: its uid, or a link once `--grafana URL` says
where it is) and, from Prometheus, the sidecar's status page (`status_page`, as it is scraped). As committed, a runbook
is the page of it that a sidecar serves (`http://SIDECAR:9464/runbooks/ALERT`). While no sidecar is seen, and in alerts
that Grafana sends, it is a path in this repository, which no pager can open: publish `docs/runbooks`, and render with
`--runbooks`.

`critical` pages somebody; `warning` is for working hours. An alert on violations is about the guarantee that the
pipeline declares (`guarantee:` of its configuration): a duplicate alerts nobody whose pipeline claims at-least-once.

| alert | severity | fires when | for | kept for |
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
- `StreamproofSidecarSilent` knows a pipeline from the metrics of the last day. One that was silent for longer is taken
  for removed, and one whose sidecar never started was never known. Name those that must be there: `--pipeline NAME`, as
  often as needed, with `build` and with `push`.
- `streamproof validate --once` ends, and a Prometheus that scraped it calls that silent: do not scrape such a run.
- Each pipeline has a name of its own, also among clusters and stages that one Prometheus sees (`eu`, `us`; `staging`,
  `prod`): alerts and dashboards go by that name. Of two sidecars that share one, none is called silent or stalled while
  the other runs, and their violations and starts are added up; `StreamproofSidecarTwice` says so.
- `StreamproofSidecarRestarting` counts the starts that Prometheus saw: scrape every 15 s, or one that lives
  for less than the interval is seen too seldom for it.
- `StreamproofOverdueGrowing` looks two minutes back: scrape at least every minute, or it cannot see growth. To come
  before the loss with the default timing it wants a scrape every 15 s; with fewer, raise `timing.missing_after`.
- `StreamproofVerdictUnknown` waits 30 minutes: with windows of about that length or longer it comes on a healthy new
  state too, until the first windows are judged ([what to do](runbooks/StreamproofVerdictUnknown.md#what-to-do)).
- While a sidecar is silent, alerts about its pipeline resolve: `StreamproofSidecarSilent` stands for them.
- "Kept for" is `keep_firing_for`: in Grafana's alerting since 12.0, in its provisioning files since 12.1.2. An older
  one leaves it out, so that such an alert may resolve and come again; `streamproof dashboards push` says so.
- A sidecar of an older version that does not serve `streamproof_guarantee_declared` fires no alert on violations.
- The dashboards show a pipeline whatever its name, but for one with a backtick or a line end: their queries write what
  was chosen between backticks, since Grafana does not escape every quote.
- The dashboards and Grafana's form of the alerts were never loaded into a Grafana: none could be had where they were
  made. Every expression of theirs was run against a Prometheus that scraped the real collector (`tests/pages/`).
"""


def _row(alert: Alert) -> str:
    # Labels of the rule itself tell apart rules of one name; those of the series stay as they are.
    page = f"[{alert.title.removeprefix('Streamproof')}](runbooks/{alert.name}.md)"
    text = VALUE.sub("*n*", NUMBERED.sub(r"\2", alert.description)).replace("{{ .Labels.", "*").replace(" }}", "*")
    return f"| {page} | {alert.severity} | {text} | {alert.waits} | {alert.keeps or 'no'} |"
