"""Makes a :class:`~validator.config.model.Config` from a file, the environment and ``--set``.

``STREAMPROOF__...`` variables override the file, and ``--set`` overrides both. References are expanded last.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from validator.config import overrides as outside
from validator.config.document import FREE_MAPS, parse_document, read_text
from validator.config.model import Config
from validator.config.options import is_secret
from validator.model.references import ReferencesUnresolved, expanded, value_at, variables_in
from validator.settings.errors import ExpansionError, InvalidConfigError


def load(
    path: Path | str,
    assignments: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Config:
    """The configuration in the file at ``path``. ``environment`` None: that of the process.

    Raises a subclass of ConfigError with one sentence for each problem.
    """
    file = Path(path)
    return loads(read_text(file), file.resolve().parent, assignments, environment, str(path))


def loads(
    text: str,
    folder: Path | str,
    assignments: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
    source: str = "configuration",
) -> Config:
    """As :func:`load`, for a text. Paths in it are relative to ``folder``. ``source`` is the text's name in errors."""
    document = parse_document(text, source)
    variables = os.environ if environment is None else environment
    applied = [*outside.from_environment(variables), *outside.from_assignments(assignments)]
    document = outside.apply(document, applied)
    origins = {tuple(int(s) if s.isdigit() else s for s in o.place): o.origin for o in applied}
    try:
        whole = expanded(document, variables, Path(folder))
    except ReferencesUnresolved as unresolved:
        raise ExpansionError(unresolved.sentences(source, text, origins)) from None
    try:
        config = Config.model_validate(whole, context={"folder": Path(folder)})
    except ValidationError as error:
        from validator.config.problems import sentences  # it needs the schema, which is slow to make

        problems = sentences(error.errors(include_url=False), source, origins, document, whole, text)
        raise InvalidConfigError(problems) from None
    config._secret_variables = _secret_variables(document, variables)  # noqa: SLF001 - frozen for all others
    return config


def _secret_variables(document: Mapping[str, Any], environment: Mapping[str, str]) -> frozenset[str]:
    """The variables that secret options refer to, and those with overrides, which may set such options."""
    found = {name for name in environment if name.startswith(outside.PREFIX)}
    for first, second in FREE_MAPS:
        for option, value in ((document.get(first) or {}).get(second) or {}).items():
            if is_secret(option) or "JavaOptions" in option:
                found |= variables_in(value)
    for entry in document.get("notify") or ():
        found |= variables_in(entry["url"])
    found |= variables_in(value_at(document, ("metrics", "otlp", "headers")))
    return frozenset(found)
