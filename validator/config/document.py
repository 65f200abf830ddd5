"""A configuration file as plain data: YAML within the bounds of `validator.model.documents`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from validator.model.documents import KAFKA_OPTIONS, DocumentRefused, KeyPath, parse, read
from validator.settings.errors import ConfigFileError

FREE_MAPS: Final = (
    KAFKA_OPTIONS,
    ("spark", "options"),
    ("metrics", "authorization"),
    ("schema_registry", "basic_auth"),
    ("schema_registry", "authorization"),
)
"""Mappings of names to texts, which may be secrets."""


def parse_value(text: str, *, texts: Iterable[KeyPath] = ()) -> Any:
    """The value of an override: ``text`` as YAML, or the text itself if it is not accepted as YAML.

    ``texts``: as in `parse`.
    """
    try:
        return parse(text, texts=texts)
    except DocumentRefused:
        return text


def parse_document(text: str, source: str) -> dict[str, Any]:
    """The mapping that ``text`` holds; ``source`` names it in errors. Raises ConfigFileError."""
    try:
        document = parse(text, texts=FREE_MAPS)
    except DocumentRefused as refused:
        raise _refusal(refused, source) from None
    if not isinstance(document, dict):
        raise ConfigFileError(
            [f"{source}, line 1: it is not a mapping of settings; see `streamproof config example clickstream`."]
        )
    return document


def read_text(path: Path) -> str:
    """The text of the file at ``path``. Raises ConfigFileError if it cannot be read."""
    try:
        return read(path)
    except FileNotFoundError:
        raise ConfigFileError([f"{path}: there is no such file; name an existing configuration."]) from None
    except OSError as error:
        raise ConfigFileError([f"{path}: it cannot be read ({error.strerror}); fix that or name another."]) from None
    except DocumentRefused as refused:
        raise _refusal(refused, str(path)) from None


def _refusal(refused: DocumentRefused, source: str) -> ConfigFileError:
    if refused.place:
        return ConfigFileError([f"{source}, {refused.place}: {refused.problem}; fix the YAML there."])
    return ConfigFileError([f"{source}: {refused.problem}; fix the YAML."])
