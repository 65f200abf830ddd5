"""``${NAME}`` and ``${file:PATH}`` in the texts of a document, expanded after the YAML was read.

Expansion is by value: what a variable holds can never add a key or a line. ``$${`` stands for a literal ``${``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from validator.config.errors import ExpansionError

REFERENCE: Final = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")
NAME: Final = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


def expand(document: Any, environment: Mapping[str, str], folder: Path, source: str) -> Any:
    """``document`` with every reference replaced; relative file paths are relative to ``folder``.

    Raises ExpansionError with one sentence for each reference that cannot be resolved.
    """
    problems: list[str] = []
    expanded = _walk(document, "", environment, folder, problems)
    if problems:
        raise ExpansionError(f"{source}: {problem}" for problem in problems)
    return expanded


def _walk(node: Any, place: str, environment: Mapping[str, str], folder: Path, problems: list[str]) -> Any:
    if isinstance(node, dict):
        return {
            key: _walk(item, f"{place}.{key}" if place else str(key), environment, folder, problems)
            for key, item in node.items()
        }
    if isinstance(node, list):
        return [_walk(item, f"{place}[{i}]", environment, folder, problems) for i, item in enumerate(node)]
    if not isinstance(node, str):
        return node

    def resolve(match: re.Match[str]) -> str:
        if match.group(1):
            return "${"
        resolved = _resolve(match.group(2), environment, folder)
        if isinstance(resolved, _Unresolved):
            problems.append(f"{place}: {resolved.problem}")
            return ""
        return resolved

    return REFERENCE.sub(resolve, node)


class _Unresolved:
    def __init__(self, problem: str) -> None:
        self.problem = problem


def _resolve(reference: str, environment: Mapping[str, str], folder: Path) -> str | _Unresolved:
    if reference.startswith("file:"):
        path = Path(reference.removeprefix("file:").strip()).expanduser()
        try:
            # Editors and `echo` end a file with a newline that is no part of the secret.
            return (folder / path).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            return _Unresolved(f"file {path} cannot be read ({reason}); mend that or name another.")
    if not NAME.match(reference):
        mend = "write ${NAME} or ${file:PATH}, or $${ for a plain ${"
        return _Unresolved(f"${{{reference}}} is no reference; {mend}.")
    if reference not in environment:
        return _Unresolved(f"environment variable {reference} is not set; set it.")
    return environment[reference]
