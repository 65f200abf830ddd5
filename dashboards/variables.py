"""The parts of a dashboard besides panels: variables and annotations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

DATASOURCE: Final[Mapping[str, str]] = {"type": "prometheus", "uid": "${datasource}"}
Json = dict[str, Any]
"""A fragment of the JSON model, used only for output."""


@dataclass(frozen=True)
class Variable:
    """A variable of a dashboard: the result of ``query`` (`label_values`, or the type of a data source), or a fixed
    list.

    ``part`` is a regular expression whose group is extracted from each value. A ``hidden`` variable is internal, and
    readers do not see it.
    """

    name: str
    label: str
    kind: Literal["datasource", "query", "custom"]
    query: str
    many: bool = False
    part: str = ""
    hidden: bool = False

    def build(self) -> Json:
        """The entry of the dashboard's `templating`."""
        hide = 2 if self.hidden else 0
        common: Json = {"name": self.name, "label": self.label, "type": self.kind, "hide": hide, "multi": self.many}
        if self.kind == "datasource":
            return {**common, "query": self.query, "refresh": 1, "regex": "", "includeAll": False}
        if self.kind == "custom":
            values = self.query.split(",")
            options = [{"text": value, "value": value, "selected": i == 0} for i, value in enumerate(values)]
            current = {"text": values[0], "value": values[0]}
            return {**common, "query": self.query, "options": options, "current": current, "includeAll": False}
        of_many: Json = {"allValue": ".*", "current": {"text": ["All"], "value": ["$__all"]}} if self.many else {}
        return {
            **common,
            "datasource": dict(DATASOURCE),
            "query": {"query": self.query, "refId": "variable"},
            "refresh": 2,  # on a change of the time range
            "sort": 1,
            "includeAll": self.many,
            **({"regex": f"/{self.part}/"} if self.part else {}),
            **of_many,
        }


@dataclass(frozen=True)
class Annotation:
    """Marks the times in which ``expression`` has series; neighbouring points become one region."""

    name: str
    expression: str
    title: str
    text: str
    colour: str

    def build(self) -> Json:
        """The entry of the dashboard's `annotations`."""
        return {
            "name": self.name,
            "datasource": dict(DATASOURCE),
            "enable": True,
            "iconColor": self.colour,
            "target": {"refId": "Anno", "expr": self.expression, "interval": "10s"},
            "titleFormat": self.title,
            "textFormat": self.text,
        }


@dataclass(frozen=True)
class TaggedAnnotation:
    """Annotations in Grafana's own store that have all of ``tags``, which may contain variables."""

    name: str
    tags: tuple[str, ...]
    colour: str

    def build(self) -> Json:
        """The entry of the dashboard's `annotations`."""
        return {
            "name": self.name,
            "datasource": {"type": "grafana", "uid": "-- Grafana --"},
            "enable": True,
            "iconColor": self.colour,
            "target": {"type": "tags", "tags": list(self.tags), "matchAny": False, "limit": 100},
        }
