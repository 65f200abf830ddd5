"""Ids and keys of records in publications: plain, hashed, or hidden. The state keeps them plain.

A hashed text is the beginning of a SHA-256 hash: that of the state's secret followed by the plain text. Equal
texts stay equal, and a text cannot be guessed without the secret. `explain` finds the text again among those of the
facts. An HMAC would only prevent that a hash is extended, which the truncation prevents, too. Redaction in the state
would make `explain` useless.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from validator.model.snapshot import Snapshot
from validator.model.violation import Violation

if TYPE_CHECKING:  # `report` and `explain` must not wait for the models of a configuration
    from validator.config.model import Publish

SECRET_FILE: Final = "published.secret"  # noqa: S105 - the name of a file
"""In the state folder, readable by its owner."""
HIDDEN: Final = "(hidden)"
DIGITS: Final = 16
HASHED: Final = re.compile(rf"hashed:([0-9a-f]{{{DIGITS}}})")


class Redaction:
    """The redaction of ids and keys by a pipeline's `publish`."""

    def __init__(self, rules: Publish, state: Path) -> None:
        """Raises OSError if the secret can be neither read nor made."""
        secret = secret_of(state) if "hashed" in (rules.ids, rules.keys) else b""
        shown: dict[str, Callable[[str], str]] = {
            "plain": lambda text: text,
            "hashed": lambda text: hashed(secret, text),
            "hidden": lambda _: HIDDEN,
        }
        self._hides_ids = rules.ids == "hidden"
        self._id, self._key = shown[rules.ids], shown[rules.keys]

    def redacted(self, snapshot: Snapshot) -> Snapshot:
        """Return ``snapshot`` as it is published."""
        return replace(snapshot, violations_latest=tuple(map(self._redacted_record, snapshot.violations_latest)))

    def _redacted_record(self, record: Violation) -> Violation:
        if record.violation_class == "undecodable":
            return record  # its key is a topic, its ids are positions
        ids = () if self._hides_ids else tuple(map(self._id, record.ids))
        return replace(record, ids=ids, key=self._key(record.key))


def secret_of(state: Path) -> bytes:
    """Return the secret of a state. If there is none, it is created. Raises OSError."""
    path = state / SECRET_FILE
    if not path.exists():
        made = path.with_name(f".{SECRET_FILE}.{os.getpid()}")
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
        made.replace(path)
    return path.read_bytes()


def hashed(secret: bytes, text: str) -> str:
    """Return ``text`` as it is published, hashed with ``secret``."""
    return f"hashed:{hashlib.sha256(secret + text.encode('utf-8', 'surrogatepass')).hexdigest()[:DIGITS]}"
