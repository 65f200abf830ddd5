"""Builders for Grafana's dashboard JSON (Grafana 11 or later): immutable values in, one deterministic dictionary out.

Only the features that the four dashboards use are modelled. Field names are those of Grafana's dashboard JSON model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from dashboards.variables import DATASOURCE, Annotation, Json, TaggedAnnotation, Variable

SCHEMA_VERSION: Final = 39
COLUMNS: Final = 24


@dataclass(frozen=True)
class Query:
    """One PromQL expression. ``legend`` is a Grafana legend template; ``form`` is the result format.

    `exemplars`: a range query with a point for each exemplar of its series, at the exemplar's value.
    """

    expression: str
    legend: str = ""
    form: Literal["range", "exemplars", "instant", "table"] = "range"

    def build(self, reference: str) -> Json:
        """The query target with ``reference`` (A, B, ...) as its refId."""
        return {
            "refId": reference,
            "datasource": dict(DATASOURCE),
            "expr": self.expression,
            "legendFormat": self.legend or "__auto",
            "instant": self.form in ("instant", "table"),
            "range": self.form in ("range", "exemplars"),
            "format": "table" if self.form == "table" else "time_series",
            **({"exemplar": True} if self.form == "exemplars" else {}),
        }


@dataclass(frozen=True)
class Threshold:
    """A threshold: ``colour`` applies from ``value`` upwards; None: from minus infinity."""

    value: float | None
    colour: str


GREEN_THEN_RED: Final = (Threshold(None, "green"), Threshold(1, "red"))
RED_THEN_GREEN: Final = (Threshold(None, "red"), Threshold(1, "green"))
PLAIN: Final = (Threshold(None, "blue"),)


@dataclass(frozen=True)
class Link:
    """A link of a dashboard or of a panel's data."""

    title: str
    url: str


@dataclass(frozen=True)
class Cells:
    """Display of the cells in one table column: ``steps`` colour them, ``mappings`` replace values by words."""

    steps: tuple[Threshold, ...]
    mappings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    unit: str = "short"

    def build(self, heading: str) -> Json:
        """The field override for the column ``heading``."""
        properties = [
            {"id": "thresholds", "value": _thresholds(self.steps)},
            {"id": "mappings", "value": _mapped(self.mappings)},
            {"id": "unit", "value": self.unit},
            {"id": "custom.cellOptions", "value": {"type": "color-background", "mode": "basic"}},
        ]
        return {"matcher": {"id": "byName", "options": heading}, "properties": properties}


@dataclass(frozen=True)
class Panel:
    """One panel. ``unit`` is Grafana's unit id; ``width`` and ``height`` are in the grid of 24 columns.

    ``columns`` of a table: Grafana's field name -> heading; other fields are hidden. ``cells``: heading -> display of
    its cells, for columns that are not plain.
    """

    kind: Literal["stat", "timeseries", "table", "state-timeline"]
    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str = "short"
    width: int = 12
    height: int = 8
    steps: tuple[Threshold, ...] = PLAIN
    mappings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    cells: Mapping[str, Cells] = field(default_factory=dict)
    maximum: float | None = None

    def build(self, number: int, left: int, top: int) -> Json:
        """The panel with id ``number`` at column ``left`` and line ``top`` of the grid."""
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": dict(DATASOURCE),
            "gridPos": {"h": self.height, "w": self.width, "x": left, "y": top},
            "targets": [query.build(chr(ord("A") + i)) for i, query in enumerate(self.queries)],
            "fieldConfig": {
                "defaults": self._defaults(),
                "overrides": [cells.build(heading) for heading, cells in self.cells.items()],
            },
            "options": self._options(),
            "transformations": self._transformations(),
        }

    def _defaults(self) -> Json:
        colour = {"mode": "palette-classic" if self.kind == "timeseries" else "thresholds"}
        defaults: Json = {
            "unit": self.unit,
            "color": colour,
            "thresholds": _thresholds(self.steps),
            "mappings": _mapped(self.mappings),
            "links": [{"title": link.title, "url": link.url} for link in self.links],
        }
        if self.maximum is not None:
            defaults |= {"min": 0, "max": self.maximum}
        if self.kind == "timeseries":
            defaults["custom"] = {"lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "spanNulls": False}
        return defaults

    def _options(self) -> Json:
        if self.kind == "stat":
            last = {"calcs": ["lastNotNull"], "fields": "", "values": False}
            return {"reduceOptions": last, "colorMode": "background", "graphMode": "none", "textMode": "auto"}
        if self.kind == "table":
            return {"showHeader": True, "cellHeight": "sm"}
        if self.kind == "state-timeline":
            return {"showValue": "never", "mergeValues": True, "legend": {"showLegend": False}}
        return {
            "legend": {"displayMode": "table", "placement": "right", "calcs": ["lastNotNull", "max"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }

    def _transformations(self) -> list[Json]:
        if self.kind != "table":
            return []
        names = list(self.columns)
        order = {"indexByName": {name: i for i, name in enumerate(names)}, "renameByName": dict(self.columns)}
        return [
            {"id": "merge", "options": {}},
            {"id": "filterFieldsByName", "options": {"include": {"names": names}}},
            {"id": "organize", "options": {"excludeByName": {}, **order}},
        ]


@dataclass(frozen=True)
class Row:
    """A heading and the panels below it, laid out from left to right."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """A dashboard. ``uid`` must never change, because links and bookmarks of users contain it."""

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
    annotations: tuple[Annotation, ...] = ()
    tagged: tuple[TaggedAnnotation, ...] = ()
    links: tuple[Link, ...] = ()
    since: str = "now-3h"

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels, from top to bottom."""
        return tuple(panel for row in self.rows for panel in row.panels)

    def build(self) -> Json:
        """The dashboard's JSON model, without the ids that Grafana assigns."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["streamproof"],
            "schemaVersion": SCHEMA_VERSION,
            "editable": True,
            "graphTooltip": 1,  # one crosshair for all panels
            "refresh": "30s",
            "time": {"from": self.since, "to": "now"},
            "timezone": "utc",
            "templating": {"list": [variable.build() for variable in self.variables]},
            "annotations": {
                "list": [*(layer.build() for layer in self.annotations), *(layer.build() for layer in self.tagged)]
            },
            "links": _links(self.links),
            "panels": _laid_out(self.rows),
        }


def _thresholds(steps: Iterable[Threshold]) -> Json:
    return {"mode": "absolute", "steps": [{"value": step.value, "color": step.colour} for step in steps]}


def _mapped(mappings: Mapping[str, tuple[str, str]]) -> list[Json]:
    if not mappings:
        return []
    shown = {value: {"text": text, "color": colour} for value, (text, colour) in mappings.items()}
    return [{"type": "value", "options": shown}]


def _links(links: Iterable[Link]) -> list[Json]:
    own: Json = {
        "type": "dashboards", "tags": ["streamproof"], "title": "streamproof", "asDropdown": True,
        "includeVars": True, "keepTime": True, "targetBlank": False, "url": "", "icon": "external link", "tooltip": "",
    }  # fmt: skip
    others = [
        {
            "type": "link",
            "title": link.title,
            "url": link.url,
            "icon": "doc",
            "tooltip": "",
            "targetBlank": True,
            "tags": [],
        }
        for link in links
    ]
    return [own, *others]


def _laid_out(rows: Iterable[Row]) -> list[Json]:
    built: list[Json] = []
    top = 0
    for row in rows:
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
        built.append(
            {
                "id": len(built) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": place,
                "panels": [],
            }
        )
        top += 1
        left = height = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                top, left, height = top + height, 0, 0
            built.append(panel.build(len(built) + 1, left, top))
            left, height = left + panel.width, max(height, panel.height)
        top += height
    return built
