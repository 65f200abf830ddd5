"""What a state belongs to: pipeline, topics, fields and oracle. Another identity is refused with the difference
named."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from validator.config.model import Config
from validator.state.tables import SCHEMA_VERSION

FILE: Final = "identity.json"


class StateMismatch(Exception):
    """The state folder belongs to another pipeline, or to a newer streamproof."""


def identity_of(config: Config) -> dict[str, Any]:
    """The part of a configuration that must not change while a state lives."""
    whole = config.model_dump(mode="json")
    kept = {name: whole[name] for name in ("pipeline", "inputs", "outputs", "late", "rejected", "oracle")}
    return {"schema": SCHEMA_VERSION, **kept}


def _said(value: Any) -> Any:
    """``value`` without what says nothing: a key that came later is no difference where nobody uses it."""
    if isinstance(value, dict):
        return {key: _said(item) for key, item in value.items() if item is not None}
    return [_said(item) for item in value] if isinstance(value, list) else value


def check_or_write(state: Path, config: Config) -> None:
    """Write the identity of a new state; raise `StateMismatch` where an old one differs."""
    path = state / FILE
    wanted = identity_of(config)
    if not path.exists():
        temporary = path.with_suffix(".tmp")
        with temporary.open("w") as file:
            json.dump(wanted, file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        return
    found = json.loads(path.read_text())
    if found.get("schema", 0) > SCHEMA_VERSION:
        raise StateMismatch(
            f"the state {state} was written by a newer streamproof (schema {found['schema']}, this one knows "
            f"{SCHEMA_VERSION}): upgrade streamproof, or give state.path a new folder"
        )
    for name, value in wanted.items():
        if _said(found.get(name)) != _said(value):
            difference = _difference(name, _said(found.get(name)), _said(value))
            raise StateMismatch(
                f"the state {state} belongs to another pipeline: {difference}; "
                "give state.path a new folder, or restore the configuration"
            )


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
