"""The identity of a state: pipeline, topics, fields and oracle.

A state with another identity than that of the configuration is refused, and the error names the first difference.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from validator.config.model import Config
from validator.model.stated_values import NO_VALUES, Values
from validator.state.folder import write_whole

FILE: Final = "identity.json"
_TOPIC_KEYS: Final = frozenset({"inputs", "outputs", "late", "rejected"})


class StateMismatch(Exception):
    """The state folder belongs to another pipeline."""


def identity_of(config: Config) -> dict[str, Any]:
    """The part of a configuration that must not change during the life of a state."""
    whole = config.model_dump(mode="json", by_alias=True)
    found = {name: whole[name] for name in ("pipeline", "inputs", "outputs", "late", "rejected", "oracle")}
    return found | {"oracle": {**whole["oracle"], **config.oracle.state_depends_on}}


def check_or_write(state: Path, config: Config) -> frozenset[str]:
    """Write the identity of a new state, or compare an existing one.

    Returns the topics whose `fields` differ. Raises `StateMismatch` if anything else differs.
    """
    if not (state / FILE).exists():
        write(state, config)
        return frozenset()
    return changed_fields(state, config)


def write(state: Path, config: Config) -> None:
    """Write the identity of ``config`` to the state."""
    path = state / FILE
    write_whole(path, json.dumps(identity_of(config), indent=1, sort_keys=True))


def stated_values(state: Path) -> Values:
    """What results state about their events, by the state's identity."""
    if not (state / FILE).exists():
        return NO_VALUES
    return Values.of(json.loads((state / FILE).read_text())["oracle"].get("values") or {})


def changed_fields(state: Path, config: Config) -> frozenset[str]:
    """The topics whose `fields` differ from the state's identity. Raises `StateMismatch` if anything else differs."""
    wanted, found = identity_of(config), json.loads((state / FILE).read_text())
    changed: set[str] = set()
    for name, new in wanted.items():
        old = found.get(name)
        if name in _TOPIC_KEYS and _without_fields(old) == _without_fields(new):
            changed |= {a["topic"] for a, b in zip(new, old, strict=True) if a["fields"] != b["fields"]}
        elif _given(old) != _given(new):
            raise mismatch(state, config)
    return frozenset(changed)


def mismatch(state: Path, config: Config, because: str | None = None) -> StateMismatch:
    """The error for a state of another pipeline, with the first difference.

    ``because``: why the state cannot be adapted to ``config``.
    """
    wanted, found = identity_of(config), json.loads((state / FILE).read_text())
    for name in wanted:
        old, new = _given(found.get(name)), _given(wanted[name])
        if old != new:
            reason = f" ({because})" if because is not None else ""
            return StateMismatch(
                f"the state {state} belongs to another pipeline: {_difference(name, old, new)}{reason}; "
                "give state.path a new folder, or restore the configuration"
            )
    return StateMismatch(f"the state {state} belongs to another pipeline; give state.path a new folder")


def _without_fields(entries: Any) -> Any:
    if not isinstance(entries, list):
        return entries
    return [_given({key: value for key, value in entry.items() if key != "fields"}) for entry in entries]


def _given(part: Any) -> Any:
    """``part`` without settings that are None: a later version may have more of them."""
    if isinstance(part, dict):
        return {key: _given(value) for key, value in part.items() if value is not None}
    return [_given(each) for each in part] if isinstance(part, list) else part


def _difference(place: str, old: object, new: object) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                return _difference(f"{place}.{key}", old.get(key), new.get(key))
    if isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            left = old[index] if index < len(old) else None
            right = new[index] if index < len(new) else None
            if left != right:
                return _difference(f"{place}[{index}]", left, right)
    return f"{place} was {json.dumps(old)} and is {json.dumps(new)} now"
