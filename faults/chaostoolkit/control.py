"""A control that publishes the fault windows of any experiment to the faults topic, for data verdicts.

The toolkit calls these functions by name (https://chaostoolkit.org/reference/extending/create-control-extension/).
It ignores exceptions of a control. Therefore, a control that cannot publish interrupts the experiment before a fault is
injected, and logs later failures as errors.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from confluent_kafka import KafkaException
from pydantic import ValidationError

from faults.chaostoolkit.windows import PublishedState, Windows
from faults.config import KafkaSection
from faults.errors import FaultError, NotPublished
from faults.spec import expected_classes
from faults.topic import FaultsTopicWriter

_LOG: Final = logging.getLogger("chaostoolkit")


@dataclass
class _ControlState:
    topic: FaultsTopicWriter
    windows: Windows

    def publish(self, records: Iterable[PublishedState]) -> None:
        for record in records:
            self.topic.write(record.id, record.value)
        try:
            self.topic.flush()
        except NotPublished as error:
            _LOG.error("%s", error)


_state: _ControlState | None = None
"""Global, since the toolkit calls plain functions. It runs one experiment per process."""


def before_experiment_control(
    context: Mapping[str, Any],
    bootstrap_servers: str = "",
    topic: str = "faults",
    options: Mapping[str, Any] | None = None,
    targets: Mapping[str, str] | None = None,
    momentary: Sequence[str] = (),
    expects: Mapping[str, Sequence[str]] | None = None,
    **unknown: Any,
) -> None:
    """Check the topic, and interrupt the experiment if the topic cannot be used: its windows would be lost."""
    global _state
    _state = None
    if context.get("dry") is not None:
        _LOG.info("streamproof: a dry run breaks nothing, so it publishes no fault windows")
        return
    if unknown or not bootstrap_servers:
        wrong = f"unknown argument {' or '.join(unknown)}" if unknown else "bootstrap_servers is not set"
        raise _interrupting(f"streamproof: the control chaosstreamproof.control: {wrong}; see docs/chaos-toolkit.")
    try:
        for classes in (expects or {}).values():
            expected_classes(tuple(classes))
        kafka = KafkaSection(bootstrap_servers=bootstrap_servers, topic=topic, options=dict(options or {}))
        writer = FaultsTopicWriter(kafka)
        writer.check()
    except (FaultError, KafkaException, ValidationError) as error:
        raise _interrupting(f"streamproof: the faults topic cannot be used: {error}") from error
    except ValueError as error:
        raise _interrupting(f"streamproof: the argument `expects`: {error}; see docs/chaos-toolkit.") from error
    _state = _ControlState(writer, Windows(str(context["title"]), targets or {}, tuple(momentary), expects or {}))


def before_method_control(**_: Any) -> None:
    """Treat the actions that follow as faults."""
    if _state is not None:
        _state.windows.in_method = True


def before_activity_control(context: Mapping[str, Any], **_: Any) -> None:
    """Open the window of an action."""
    if _state is not None:
        _state.publish(_state.windows.action_begins(context, _now()))


def after_activity_control(context: Mapping[str, Any], **_: Any) -> None:
    """Close the window of a momentary action."""
    if _state is not None:
        _state.publish(_state.windows.action_ended(context, _now()))


def after_method_control(context: Mapping[str, Any], **_: Any) -> None:
    """Close all windows if the experiment has no rollbacks."""
    if _state is None:
        return
    _state.windows.in_method = False
    if not context.get("rollbacks"):
        now = _now()
        _state.publish([*_state.windows.healing_begins(now), *_state.windows.healed(now)])


def before_rollback_control(**_: Any) -> None:
    """Publish that healing starts."""
    if _state is not None:
        _state.publish(_state.windows.healing_begins(_now()))


def after_rollback_control(state: Sequence[Mapping[str, Any]] | None = None, **_: Any) -> None:
    """Close all windows if every rollback succeeded."""
    if _state is not None and all(run.get("status") == "succeeded" for run in state or ()):
        _state.publish(_state.windows.healed(_now()))


def after_experiment_control(**_: Any) -> None:
    """Log the windows that stay open."""
    global _state
    if _state is not None and (left := _state.windows.open_names):
        _LOG.error(
            "streamproof: the windows of %s stay open, since no rollback healed the faults; heal them by hand, then"
            " write `healed` to the faults topic (docs/CONTRACT.md); next time, use --rollback-strategy=always.",
            ", ".join(left),
        )
    _state = None


def _now() -> datetime:
    return datetime.now(UTC)


def _interrupting(message: str) -> Exception:
    """The only exception with which a control can interrupt an experiment."""
    _LOG.error("%s", message)
    try:
        exceptions = importlib.import_module("chaoslib.exceptions")
    except ModuleNotFoundError:
        return NotPublished(message)
    found: Exception = exceptions.InterruptExecution(message)
    return found
