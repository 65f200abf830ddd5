"""`streamproof dashboards build|check|push`."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dashboards import site
from dashboards.settings import Settings
from validator.model.terminal import plain

if TYPE_CHECKING:
    from dashboards.grafana import Credentials, Grafana

# HTTP clients are imported only by the actions that need them, so that `build` works without the extra `grafana`.
PASS: Final = 0
FAIL: Final = 1


def run(given: argparse.Namespace) -> int:
    """Run ``given.action``; the exit status. Errors carry their own exit status."""
    named = getattr(given, "grafana", None) or ""
    address = named if not named or "://" in named else f"http://{named}"
    settings = Settings(given.objective, given.runbooks, tuple(given.pipelines), address)
    if given.action == "build":
        return _build(Path(given.out), settings)
    if given.action == "check":
        return _check(given.prometheus, settings)
    from dashboards.grafana import Grafana

    grafana = Grafana(given.grafana, credentials(os.environ))
    return _push(grafana, settings, given)


def credentials(environment: Mapping[str, str]) -> Credentials:
    """Credentials from the environment, because other users can read arguments. Raises GrafanaRefusal."""
    from dashboards.grafana import GrafanaRefusal

    token = environment.get("GRAFANA_TOKEN", "").strip()
    user, password = environment.get("GRAFANA_USER", ""), environment.get("GRAFANA_PASSWORD", "")
    if token:
        if not re.fullmatch(r"[!-~]+", token):
            raise GrafanaRefusal("GRAFANA_TOKEN: it contains a space or a line end; set it to the token only.")
        return token
    if user and password:
        return user, password
    raise GrafanaRefusal(
        "dashboards push: no credentials; set GRAFANA_TOKEN to a service account's token (or GRAFANA_USER and "
        "GRAFANA_PASSWORD)."
    )


def _build(folder: Path, settings: Settings) -> int:
    for path in site.write(folder, settings):
        print(path)
    return PASS


def _check(url: str, settings: Settings) -> int:
    from dashboards import live

    answers = list(live.check(url, settings))
    wrong = [answer for answer in answers if answer.problem]
    for answer in wrong:
        print(f"refused  {answer.where}: {answer.problem}")
    for answer in answers:
        # Expressions of alerts return no series while the alert does not fire, so they are not counted.
        if not answer.series and not answer.problem and not answer.where.startswith("alert "):
            print(f"empty    {answer.where}")
    absent = live.not_loaded(url, settings)
    if absent:
        print(f"note     this Prometheus lacks the alerts {', '.join(absent)}; add {site.RULES_FILE} to rule_files.")
    full = sum(answer.series > 0 for answer in answers)
    print(f"{len(answers)} expressions: {len(answers) - len(wrong)} valid, {full} with series now.")
    return FAIL if wrong else PASS


def _push(grafana: Grafana, settings: Settings, given: argparse.Namespace) -> int:
    from dashboards.fault_annotations import PortAccess, push_faults
    from dashboards.push import push

    steps = push(grafana, settings, given.datasource, dry=given.dry_run)
    notes: dict[str, None] = {}
    access = PortAccess(given.ca_file, given.token_file)
    faults = (push_faults(grafana, source, dry=given.dry_run, access=access) for source in given.faults)
    for step in chain(steps, *faults):
        would = "would be " if given.dry_run and step.change != "unchanged" else ""
        print(plain(f"{step.what}: {would}{step.change}"), flush=True)
        notes[step.note] = None  # each note once, in order of appearance
    for note in filter(None, notes):
        print(f"note: {note}.")
    return PASS
