"""Asking a Prometheus whether it understands every expression of rules and dashboards, and has series for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from typing import Any, Final

import requests

from dashboards.alerts import alerts, recordings
from dashboards.grafana_rules import inline_recordings
from dashboards.queries import expressions, label_values, substituted
from dashboards.settings import Settings
from dashboards.site import dashboards

TIMEOUT_SECONDS: Final = 15.0


class PrometheusError(Exception):
    """A Prometheus could not be asked; the text is one sentence."""

    exit_status = 3


@dataclass(frozen=True)
class QueryResult:
    """What a Prometheus said to one expression: how many ``series``, or the ``problem`` that it has with it.

    For a variable of a dashboard they are its values.
    """

    where: str
    expression: str
    series: int
    problem: str = ""


def all_expressions(settings: Settings) -> list[tuple[str, str]]:
    """(where, expression) of everything that asks a Prometheus with PromQL; recorded series are written out, and
    variables are given values. What the variables ask for is no PromQL: ``check`` asks that too.
    """
    found = [(f"recording rule {rule.name}", rule.expression) for rule in recordings()]
    found += [(f"alert {alert.title}", inline_recordings(alert.expression)) for alert in alerts(settings)]
    for board in dashboards(settings):
        found += [(where, substituted(expression)) for where, expression in expressions(board)]
    return found


def check(url: str, settings: Settings) -> Iterator[QueryResult]:
    """Ask the Prometheus at ``url`` each expression, as of now, and the values of variables. Raises PrometheusError."""
    for where, expression in all_expressions(settings):
        told = _get(url, "query", {"query": expression})
        yield _answer(where, expression, told, lambda data: data["result"])
    for board in dashboards(settings):
        for where, selector, label in label_values(board):
            asked = substituted(selector)
            told = _get(url, f"label/{label}/values", {"match[]": asked})
            yield _answer(where, f"label_values({asked}, {label})", told, lambda data: data or ())


def _answer(where: str, expression: str, told: dict[str, Any], found: Callable[[Any], Sized]) -> QueryResult:
    if told.get("status") == "success":
        return QueryResult(where, expression, len(found(told["data"])))
    return QueryResult(where, expression, 0, str(told.get("error", "no reason was given")))


def not_loaded(url: str, settings: Settings) -> list[str]:
    """Our alerts that the Prometheus at ``url`` does not evaluate. Raises PrometheusError."""
    told = _get(url, "rules", {"type": "alert"})
    names = {rule["name"] for group in told.get("data", {}).get("groups", ()) for rule in group["rules"]}
    return sorted({alert.name for alert in alerts(settings)} - names)


def _get(url: str, what: str, query: dict[str, str]) -> dict[str, Any]:
    base = (url if "://" in url else f"http://{url}").rstrip("/")
    try:
        answer = requests.get(f"{base}/api/v1/{what}", params=query, timeout=TIMEOUT_SECONDS)
        told = answer.json()
    except requests.exceptions.JSONDecodeError as error:
        raise PrometheusError(f"{url}: it does not answer as a Prometheus; check --prometheus.") from error
    except requests.RequestException as error:
        raise PrometheusError(f"{url}: no Prometheus answers there; start it, or name it with --prometheus.") from error
    if not isinstance(told, dict) or "status" not in told:
        raise PrometheusError(f"{url}: it does not answer as a Prometheus; check --prometheus.")
    return told
