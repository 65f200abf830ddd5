"""``${NAME}`` and ``${file:PATH}`` in the texts of a document, expanded after the YAML was read.

Expansion is by value: the value of a variable can never add a key or a line, and is not expanded again. ``$${`` stands
for a literal ``${``.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from validator.model.documents import Place, at_setting, spell

REFERENCE: Final = re.compile(r"\$(\$\{)|\$\{([^}]{0,500})\}")
"""The bound on the length keeps the search linear if braces are never closed."""
NAME: Final = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
FILE_BYTES_MAX: Final = 1024 * 1024
"""Largest size of a file that a reference may name."""
EXPANDED_MAX: Final = 8 * 1024 * 1024
"""Largest number of characters that all references of a document stand for together."""
_SHOWN_LENGTH: Final = 60


class ReferencesUnresolved(ValueError):
    """References that cannot be expanded; ``found`` holds the place of each and a sentence without it."""

    def __init__(self, found: Iterable[tuple[Place, str]]) -> None:
        self.found = tuple(found)
        super().__init__(" ".join(f"{spell(place)}: {problem}" for place, problem in self.found))

    def sentences(self, source: str, text: str, origins: Mapping[Place, str]) -> list[str]:
        """One sentence for each, as `at_setting` names its place in the ``text`` of the file ``source``."""
        return [f"{at_setting(source, text, place, origins)}: {problem}" for place, problem in self.found]


def variables_in(document: Any) -> frozenset[str]:
    """Return the names of the environment variables to which the texts of ``document`` refer."""
    found = (match.group(2) for text in _texts(document) for match in REFERENCE.finditer(text))
    return frozenset(name for name in found if name is not None and NAME.match(name))


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict | list):
        for item in node.values() if isinstance(node, dict) else node:
            yield from _texts(item)


def value_at(document: Any, place: Iterable[str | int]) -> Any:
    """Return the value at ``place`` of a document; None if the document has no such place."""
    for step in place:
        try:
            document = document[step]
        except (KeyError, IndexError, TypeError):
            return None
    return document


def expanded(document: Any, environment: Mapping[str, str], folder: Path) -> Any:
    """Return ``document`` with every reference replaced. Relative file paths are relative to ``folder``.

    Raises `ReferencesUnresolved`.
    """
    work = _Expansion(environment, folder)
    result = work.expand(document, ())
    if work.problems:
        raise ReferencesUnresolved(work.problems)
    return result


class _Expansion:
    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._environment = environment
        self._folder = folder
        self._left = EXPANDED_MAX
        self.problems: list[tuple[Place, str]] = []

    def expand(self, node: Any, place: Place) -> Any:
        if isinstance(node, dict):
            return {key: self.expand(item, (*place, str(key))) for key, item in node.items()}
        if isinstance(node, list):
            return [self.expand(item, (*place, i)) for i, item in enumerate(node)]
        return REFERENCE.sub(lambda match: self._value(match, place), node) if isinstance(node, str) else node

    def _value(self, match: re.Match[str], place: Place) -> str:
        if match.group(1):
            return "${"
        if self._left < 0:
            return ""
        try:
            value = self._resolved(match.group(2))
        except ValueError as error:
            self.problems.append((place, str(error)))
            return ""
        self._left -= len(value)
        if self._left < 0:
            why = f"the references of the document expand to more than {EXPANDED_MAX:,} characters"
            self.problems.append((place, f"{why}; shorten their values."))
        return value

    def _resolved(self, reference: str) -> str:
        if reference.startswith("file:"):
            return self._content(Path(reference.removeprefix("file:").strip()))
        if not NAME.match(reference):
            fix = "write ${NAME} or ${file:PATH}, or $${ for a plain ${"
            raise ValueError(f"${{{reference[:_SHOWN_LENGTH]}}} is not a reference; {fix}.")
        if reference not in self._environment:
            raise ValueError(f"environment variable {reference} is not set; set it.")
        return self._environment[reference]

    def _content(self, path: Path) -> str:
        try:
            # Not blocking: opening a named pipe without a writer would wait for ever.
            descriptor = os.open(self._folder / path.expanduser(), os.O_RDONLY | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise ValueError(f"file {path} is not a regular file; name one.")
                content = file.read(FILE_BYTES_MAX + 1)
            if len(content) > FILE_BYTES_MAX:
                raise ValueError(f"file {path} has more than {FILE_BYTES_MAX:,} bytes; name another.")
            # Editors and `echo` end a file with a newline that is not part of the secret.
            return content.decode("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise ValueError(f"file {path} cannot be read ({reason}); fix that or name another.") from error
        except RuntimeError as error:
            raise ValueError(f"the home folder of file {path} is not known; write its whole path.") from error
