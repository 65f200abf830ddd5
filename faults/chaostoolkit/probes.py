"""Probes: the findings of a sidecar. `source` is the URL of a sidecar or its state folder.

Each raises NoAnswer if there is no reliable report, which fails the activity: a missing report never passes.
"""

# No `from __future__ import annotations`: the toolkit needs the classes of the arguments in the signature.
from datetime import UTC, datetime, timedelta
from typing import Final

from pydantic import TypeAdapter, ValidationError

from faults.chaostoolkit.source import NoAnswer, fresh_report, instant, read
from faults.section import Seconds

__all__ = ["reliability", "verdict", "violations_since"]

FRESH_WITHIN_SECONDS: Final = 60.0
_SECONDS: Final[TypeAdapter[float]] = TypeAdapter(Seconds)


def verdict(
    source: str,
    guarantee: str | None = None,
    over: str = "run",
    fresh_within_seconds: float | None = FRESH_WITHIN_SECONDS,
) -> str:
    """`pass`, `fail` or `unknown`.

    ``guarantee``: `at_most_once`, `at_least_once` or `exactly_once`; default: the guarantee that the pipeline declares.
    ``over``: `run`, `1h` or `24h`.
    """
    report = fresh_report(source, fresh_within_seconds)
    asked = guarantee or str(report["guarantee"])
    verdicts = report["verdicts"] if over == "run" else report["verdicts_over"].get(over, {})
    if asked not in verdicts:
        raise NoAnswer(
            f"{source}: no verdict on {asked} exists (`over` is {over}); set `guarantee` to at_most_once, at_least_once"
            " or exactly_once, and set `over` to run, 1h or 24h."
        )
    return str(verdicts[asked])


def reliability(
    source: str,
    measure: str = "handled_ratio",
    fresh_within_seconds: float | None = FRESH_WITHIN_SECONDS,
) -> float:
    """`handled_ratio` or `exact_ratio`, 0 to 1, over the settled windows of the run."""
    report = fresh_report(source, fresh_within_seconds)
    measures = report["reliability"]
    if measure not in ("handled_ratio", "exact_ratio"):
        raise NoAnswer(f"{measure}: there is no such measure; use handled_ratio or exact_ratio.")
    if measures.get(measure) is None:
        raise NoAnswer(f"{source}: no window is settled yet, so there is no {measure}; probe after the first verdict.")
    return float(measures[measure])


def violations_since(
    source: str,
    since: str,
    classes: list[str] | None = None,
    fresh_within_seconds: float | None = FRESH_WITHIN_SECONDS,
) -> int:
    """Number of contributions and results in the violations that were confirmed since ``since``.

    ``since``: an RFC 3339 time, or a duration before now, such as `15m`. ``classes``: only these, such as `missing`.
    The sidecar lists only its newest violations, of all classes. If it had more, the number may be too low.
    """
    fresh_report(source, fresh_within_seconds)
    begin = _begin(since)
    return sum(
        int(violation["count"])
        for violation in read(source, "violations.json")["violations"]
        if violation["state"] == "confirmed"
        and instant(violation["changed"]) >= begin
        and (classes is None or violation["class"] in classes)
    )


def _begin(since: str) -> datetime:
    try:
        return datetime.now(UTC) - timedelta(seconds=_SECONDS.validate_python(since))
    except ValidationError:
        pass
    try:
        return instant(since)
    except ValueError:
        raise NoAnswer(f"since: {since} is neither an RFC 3339 time nor a duration such as 15m; write one.") from None
