"""Updates a Grafana to the rendered dashboards and rules: reads first, and writes only differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from dashboards.grafana import Grafana, GrafanaRefusal
from dashboards.grafana_rules import FOLDER_TITLE, KEEP_FIRING_FIELD, RuleDestination, alert_groups, api_group
from dashboards.settings import Settings
from dashboards.site import FOLDER_UID, dashboards
from validator import __version__

MESSAGE: Final = f"streamproof {__version__}"
Change = Literal["created", "updated", "unchanged"]
NO_KEEP_FIRING: Final = (
    f"this Grafana does not support {KEEP_FIRING_FIELD} (Grafana 12.0 and later do), so an alert may resolve and "
    "fire again repeatedly"
)


@dataclass(frozen=True)
class PushedItem:
    """One object in Grafana and the change made (or, in a dry run, planned); ``note`` is an unsupported feature."""

    what: str
    change: Change
    note: str = ""


def push(grafana: Grafana, settings: Settings, datasource_uid: str | None, *, dry: bool) -> Iterator[PushedItem]:
    """Yield each object when it is done. ``datasource_uid``: the Prometheus that alerts query; None if there is only
    one.

    A dry run sends only GET requests. Raises GrafanaError; earlier changes remain, and a second push continues.
    Raises GrafanaRefusal for an object that differs and comes from a provisioning file.
    """
    place = RuleDestination(grafana.organization(), FOLDER_UID, _datasource(grafana, datasource_uid))
    there = grafana.folder(FOLDER_UID)
    if there is None and not dry:
        grafana.create_folder(FOLDER_UID, FOLDER_TITLE)
    yield PushedItem(f"folder {FOLDER_TITLE}", "unchanged" if there else "created")
    for board in dashboards(settings):
        model = board.build()
        kept = grafana.dashboard(board.uid)
        at_home = kept is not None and kept.get("meta", {}).get("folderUid") == FOLDER_UID
        # A newer Grafana may return the model in a newer schema version.
        said = {name: value for name, value in model.items() if name != "schemaVersion"}
        change = _change(said, None if kept is None else kept.get("dashboard"))
        if change == "unchanged" and not at_home:
            change = "updated"
        if change == "updated" and (kept or {}).get("meta", {}).get("provisioned"):
            raise _of_file(grafana, f"dashboard {board.uid}")
        if change != "unchanged" and not dry:
            grafana.save_dashboard(model, FOLDER_UID, MESSAGE)
        yield PushedItem(f"dashboard {board.uid}", change)
    for group, alerts in alert_groups(settings):
        body = api_group(group, alerts, settings, place)
        rules = grafana.rule_group(FOLDER_UID, group.name) if there else None
        change = _change(_without_keep_firing(body) if _lacks_keep_firing(rules) else body, rules)
        if change == "updated" and any(rule.get("provenance") == "file" for rule in (rules or {}).get("rules", ())):
            raise _of_file(grafana, f"alert rules {group.name}")
        if change != "unchanged" and not dry:
            rules = grafana.save_rule_group(FOLDER_UID, group.name, body)
        yield PushedItem(f"alert rules {group.name}", change, NO_KEEP_FIRING if _lacks_keep_firing(rules) else "")


def _lacks_keep_firing(group: Mapping[str, Any] | None) -> bool:
    """Whether Grafana ignored the keep-firing field in ``group``; a version that supports it returns `0s` as its
    default.
    """
    rules = (group or {}).get("rules") or ()
    return bool(rules) and not any(KEEP_FIRING_FIELD in rule for rule in rules)


def _without_keep_firing(body: Mapping[str, Any]) -> dict[str, Any]:
    rules = [{name: value for name, value in rule.items() if name != KEEP_FIRING_FIELD} for rule in body["rules"]]
    return {**body, "rules": rules}


def _of_file(grafana: Grafana, what: str) -> GrafanaRefusal:
    """The refusal to change an object that came from a provisioning file. Grafana refuses it, too: a dashboard with
    status 400, rules with 409, in older versions with 500 and without a reason.
    """
    fix = "replace that file with the output of `streamproof dashboards build`, or remove it, restart Grafana and push"
    return GrafanaRefusal(f"{grafana.url}: {what} came from a provisioning file, so a push cannot change it; {fix}.")


def _datasource(grafana: Grafana, wanted: str | None) -> str:
    found = grafana.prometheus_uids()
    listed = ", ".join(found) or "none"
    if wanted is not None:
        if wanted not in found:
            raise GrafanaRefusal(
                f"--datasource: {wanted} is not a Prometheus data source of this Grafana; it has {listed}."
            )
        return wanted
    if len(found) != 1:
        fix = "add a Prometheus data source" if not found else f"choose one with --datasource: {listed}"
        raise GrafanaRefusal(f"{grafana.url}: it has {len(found)} Prometheus data sources; {fix}.")
    return found[0]


def _change(ours: Mapping[str, Any], theirs: object) -> Change:
    if theirs is None:
        return "created"
    return "unchanged" if is_within(ours, theirs) else "updated"


def is_within(ours: object, theirs: object) -> bool:
    """Whether ``theirs`` contains everything in ``ours``; Grafana adds ids, times and defaults.

    Lists must have the same length, because an additional rule or panel is a difference.
    """
    if isinstance(ours, Mapping):
        return isinstance(theirs, Mapping) and all(
            name in theirs and is_within(value, theirs[name]) for name, value in ours.items()
        )
    if isinstance(ours, Sequence) and not isinstance(ours, str):
        return (
            isinstance(theirs, Sequence)
            and len(ours) == len(theirs)
            and all(is_within(mine, other) for mine, other in zip(ours, theirs, strict=True))
        )
    return ours == theirs
