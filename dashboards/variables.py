"""What a dashboard asks for besides its panels: variables, and stretches of time that are marked in all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

DATASOURCE: Final[Mapping[str, str]] = {"type": "prometheus", "uid": "${datasource}"}
Json = dict[str, Any]
"""A piece of the JSON model: it leaves this package as text, and nothing reads it back."""


@dataclass(frozen=True)
class Variable:
    """A variable of a dashboard: what ``query`` finds (`label_values`, or a data source's type), or a fixed list.

    ``part`` is a regular expression of which the group is taken from each value; such a one is for the dashboard's own
    use, and no reader sees it.
    """

    name: str
    label: str
    kind: Literal["datasource", "query", "custom"]
    query: str
    many: bool = False
    part: str = ""

    def build(self) -> Json:
        """The entry of the dashboard's `templating`."""
        hide = 2 if self.part else 0
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
    """Stretches of time in which ``expression`` has series; neighbouring points become one region."""

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
    """What was written into Grafana itself under all of ``tags``, which may hold variables."""

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
