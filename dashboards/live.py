"""Checks whether a Prometheus accepts each expression of rules and dashboards, and finds series for each."""

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
    """The request to Prometheus failed; the text is one sentence."""

    exit_status = 3


@dataclass(frozen=True)
class QueryResult:
    """The response of a Prometheus to one expression: the number of ``series``, or the ``problem``.

    For a variable of a dashboard, the series are its values.
    """

    where: str
    expression: str
    series: int
    problem: str = ""


def all_expressions(settings: Settings) -> list[tuple[str, str]]:
    """(where, expression) of every PromQL expression. Recorded series are replaced by their expressions and variables
    by values. The queries of variables are not PromQL; ``check`` handles them separately.
    """
    found = [(f"recording rule {rule.name}", rule.expression) for rule in recordings()]
    found += [(f"alert {alert.title}", inline_recordings(alert.expression)) for alert in alerts(settings)]
    for board in dashboards(settings):
        found += [(where, substituted(expression)) for where, expression in expressions(board)]
    return found


def check(url: str, settings: Settings) -> Iterator[QueryResult]:
    """Query the Prometheus at ``url`` for each expression and for the values of variables. Raises PrometheusError."""
    for where, expression in all_expressions(settings):
        received = _get(url, "query", {"query": expression})
        yield _answer(where, expression, received, lambda data: data["result"])
    for board in dashboards(settings):
        for where, selector, label in label_values(board):
            asked = substituted(selector)
            received = _get(url, f"label/{label}/values", {"match[]": asked})
            yield _answer(where, f"label_values({asked}, {label})", received, lambda data: data or ())


def _answer(where: str, expression: str, received: dict[str, Any], found: Callable[[Any], Sized]) -> QueryResult:
    if received.get("status") == "success":
        return QueryResult(where, expression, len(found(received["data"])))
    return QueryResult(where, expression, 0, str(received.get("error", "no reason given")))


def not_loaded(url: str, settings: Settings) -> list[str]:
    """The alerts that the Prometheus at ``url`` does not evaluate. Raises PrometheusError."""
    received = _get(url, "rules", {"type": "alert"})
    names = {rule["name"] for group in received.get("data", {}).get("groups", ()) for rule in group["rules"]}
    return sorted({alert.name for alert in alerts(settings)} - names)


def _get(url: str, what: str, query: dict[str, str]) -> dict[str, Any]:
    base = (url if "://" in url else f"http://{url}").rstrip("/")
    try:
        answer = requests.get(f"{base}/api/v1/{what}", params=query, timeout=TIMEOUT_SECONDS)
        received = answer.json()
    except requests.exceptions.JSONDecodeError as error:
        raise PrometheusError(f"{url}: the response is not from a Prometheus; check --prometheus.") from error
    except requests.RequestException as error:
        raise PrometheusError(f"{url}: no Prometheus answers there; start it, or set --prometheus.") from error
    if not isinstance(received, dict) or "status" not in received:
        raise PrometheusError(f"{url}: the response is not from a Prometheus; check --prometheus.")
    return received
