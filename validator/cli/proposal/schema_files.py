"""The schemas that `config init --schema TOPIC=FILE` names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from validator.cli.exits import UsageError
from validator.settings.formats.guesses import Setting
from validator.settings.formats.schema_files import SchemaUnusable, formats_of_schema


def formats_of(given: Iterable[str], topics: Sequence[str], *, has_registry: bool) -> Mapping[str, tuple[Setting, ...]]:
    """Return the formats that the values of each topic may have. ``given``: as in the command, `TOPIC=FILE` or
    `TOPIC=FILE:TYPE`. ``has_registry``: as in `formats_of_schema`. Raises `UsageError`."""
    found = {}
    for one in given:
        topic, _, file = one.partition("=")
        if topic not in topics or not file:
            raise UsageError(
                f"config init: --schema {one} does not begin with a topic; write TOPIC=FILE with one of "
                f"{', '.join(topics)}."
            )
        path, _, message = (file, "", "") if Path(file).expanduser().is_file() else file.rpartition(":")
        path = str(Path(path or message).expanduser())
        try:
            found[topic] = tuple(formats_of_schema(path, Path(path).read_bytes(), message, has_registry=has_registry))
        except OSError as error:
            raise UsageError(f"config init: the file of --schema {one} cannot be read ({error.strerror}).") from None
        except SchemaUnusable as unusable:
            raise UsageError(f"config init: the file of --schema {one} {unusable}.") from None
    return found
