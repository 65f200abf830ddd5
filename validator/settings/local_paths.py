"""Paths of files and folders in a configuration. A relative path is relative to the folder of the file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo

from validator.settings.errors import broken_rule


def against_the_file(value: Any, info: ValidationInfo) -> Any:
    """The path of a validator's ``value``, below the folder of the configuration if it is relative."""
    folder = (info.context or {}).get("folder")
    if isinstance(value, str) and not value.strip():
        raise broken_rule("it is empty", "name a path")
    return Path(folder) / Path(value).expanduser() if folder is not None and isinstance(value, (str, Path)) else value


LocalPath = Annotated[Path, BeforeValidator(against_the_file), PlainSerializer(str, return_type=str, when_used="json")]
"""A path in the configuration. A relative path is relative to the folder of the file."""
